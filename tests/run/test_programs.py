"""Programs that several runs share: compiled once, and the same numbers as alone."""

import jax.numpy as jnp
import numpy as np
import pytest
from common import slow

import replicax as rx

TARGET = rx.targets.modes25()


class Traced:
    """A target that counts how often it is traced."""

    def __init__(self) -> None:
        self.count = 0

    def energy(self, x):
        self.count += 1
        return jnp.sum((x**2 - 1) ** 2)


def run(programs=None, target=TARGET, **options):
    # Small steps, in which roundings do not grow: constants and arguments are rounded differently.
    chosen = {"num_steps": 600, "num_replicas": 4, "learning_rate": (0.003, 0.02), "num_chains": 2}
    return rx.sample(
        target, jnp.zeros(2), progress=False, programs=programs, **{**chosen, **options}
    )


DIFFERENT = [
    {"window": 5, "seed": 3, "burn_in": 200},
    slow({"target_swap_rate": 0.2, "window": 1, "learning_rate": (0.001, 0.1)}),
    slow({"buffer": 2.0, "buffer_gain": rx.Gain(), "window": 2}),
    slow({"schedule": "seo"}),
    slow({"rule": rx.swap.window_corrected(0.7, 2.0), "temperature": (1.0, 4.0), "window": 3}),
    slow({"rule": rx.swap.bias_corrected(1.0), "temperature": (1.0, 4.0), "window": 1}),
]


@pytest.mark.parametrize("options", DIFFERENT, ids=lambda options: " ".join(options))
def test_a_shared_program_gives_the_numbers_of_its_own(options, shared=rx.Programs()) -> None:  # noqa: B008
    if len(shared) == 0:
        run(shared)
    alone, together = run(**options), run(shared, **options)
    np.testing.assert_array_equal(together.rung_of, alone.rung_of)
    np.testing.assert_allclose(together.draws, alone.draws, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(together.window_swap_rate, alone.window_swap_rate)
    np.testing.assert_array_equal(together.verdict_rate, alone.verdict_rate)


def test_runs_that_differ_in_numbers_compile_once() -> None:
    programs, target = rx.Programs(), Traced()
    options = {"buffer": 1.0, "buffer_gain": 0.1}
    run(programs, target.energy, **options)
    traced, made = target.count, len(programs)
    for window, rate in ((2, 0.3), (3, 0.5)):
        run(programs, target.energy, window=window, target_swap_rate=rate, seed=9, **options)
    assert len(programs) == made
    # Checking the energy's shape traces it once a call; moves and chunks do not.
    assert target.count == traced + 2


@pytest.mark.slow
def test_other_targets_and_kernels_do_not_share() -> None:
    programs = rx.Programs()
    cold = run(programs, rx.targets.gaussian(std=0.1), learning_rate=0.001, temperature=(1.0, 2.0))
    made = len(programs)
    warm = run(programs, rx.targets.gaussian(std=1.0), learning_rate=0.001, temperature=(1.0, 2.0))
    assert len(programs) == 2 * made
    assert np.std(cold.draws[:, 300:]) < 0.5 * np.std(warm.draws[:, 300:]) + 0.1
    run(programs, rx.targets.gaussian(), kernel="momentum", learning_rate=0.001)
    assert len(programs) == 3 * made
