"""Long runs take no more memory at their end than at their beginning."""

import jax.numpy as jnp
import pytest

import replicax as rx
from replicax.run.devices import memory_in_use


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_million_steps_take_constant_memory(tmp_path) -> None:
    used: list[tuple[int, int]] = []

    def look(progress: rx.callbacks.Progress) -> None:
        used.append((progress.step, memory_in_use()))

    rx.sample(
        lambda x: jnp.sum((x**2 - 1) ** 2), jnp.ones(4), num_steps=1_000_000, num_replicas=8,
        num_chains=2, method=rx.deo_star((0.01, 0.1), temperature=(0.1, 1.0), buffer=0.1), thin=2,
        run_dir=tmp_path / "run", checkpoint_every="2s", callback=look, progress=False,
    )  # fmt: skip
    at_a_tenth = next(count for step, count in used if step >= 100_000)
    at_the_end = used[-1][1]
    print(f"{at_a_tenth / 2**20:.0f} MiB at a tenth, {at_the_end / 2**20:.0f} MiB at the end")
    assert at_the_end < 1.1 * at_a_tenth
