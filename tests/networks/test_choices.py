"""The choices of `rx.train`: kernels, rates in time, clipping, own methods and evaluations."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import assert_same_run, chunks_of
from tiny_networks import LADDER, assert_trees_close, networks_that_start_from, tiny_data

import replicax as rx
from replicax.algorithm import kernels
from replicax.algorithm.ladder import Ladder
from replicax.networks.evaluate import Epoch, with_hook
from replicax.networks.tempered import tempered
from replicax.nn.network import Network, apply_dense, init_dense
from replicax.run.methods import Method
from replicax.run.options import Training
from replicax.run.parts import Clock, build_kernel
from replicax.run.records import Evaluation
from replicax.run.resolve import resolve, with_usual

CLOCK = Clock(epochs=10, steps_per_epoch=4, cycle_epochs=5, warmup_epochs=2)


def kernel_of(kernel: str, clip: float | None = None, **choices: Any) -> kernels.Kernel:
    method = with_usual(Method("own", kernel=kernel, **choices), of_networks=True)
    return build_kernel(method, CLOCK.epochs * CLOCK.steps_per_epoch, CLOCK, clip)


def moved(kernel: Any, gradients: list[float], rate: float = 0.5) -> list[float]:
    """The steps that one parameter takes under these gradients, per learning rate."""
    replica, taken = kernel.init(jnp.zeros(())), []
    step = jax.jit(
        lambda replica, gradient: kernel.step(
            None,
            replica,
            lambda params: (jnp.zeros(()), gradient),
            Ladder(jnp.float32(rate), jnp.array(0.0)),
        )[0]
    )
    for gradient in gradients:
        before = float(replica.params)
        replica = step(replica, jnp.array(gradient))
        taken.append((float(replica.params) - before) / -rate)
    return taken


def test_rates_change_in_time_as_their_names_say() -> None:
    def factors(schedule: Any) -> list[float]:
        return moved(kernel_of("sgld", rate_schedule=schedule), [1.0] * 40)

    np.testing.assert_allclose(factors("constant"), 1.0, rtol=1e-5)
    cosine = factors("cosine")  # eight steps of warm-up, then half a cosine
    np.testing.assert_allclose(cosine[:9], 1 / 9 + np.arange(9) / 9, rtol=1e-4)
    fall = [(1 + math.cos(math.pi * k / 32)) / 2 for k in range(32)]
    np.testing.assert_allclose(cosine[8:], fall, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(factors("stepwise"), [1.0] * 28 + [0.2] * 8 + [0.04] * 4, rtol=1e-4)
    cycles = factors("cyclical")
    np.testing.assert_allclose(cycles[:20], cycles[20:], rtol=1e-4)
    own = factors(optax.exponential_decay(1.0, 10, 0.5))
    np.testing.assert_allclose(own, 0.5 ** (np.arange(40) / 10), rtol=1e-4)
    assert factors(lambda step: 0.0)[0] == pytest.approx(1e-6), "noise is divided by the rate"
    with pytest.raises(ValueError, match="rate_schedule is nan at step 20;"):
        factors(lambda step: jnp.where(step < 20, 1.0, jnp.nan))
    with pytest.raises(ValueError, match="The schedule .* is inf at step 0"):
        kernels.scheduled(kernels.sgld(), lambda step: 1 / step)


def test_gradients_are_cut_to_their_greatest_length() -> None:
    clipped = kernel_of("sgld", clip=2.0)
    np.testing.assert_allclose(moved(clipped, [1.0, -1.9, 5.0, -8.0]), [1, -1.9, 2, -2], rtol=1e-5)
    both = kernels.clipped(kernels.sgld(), 5.0)
    replica = both.init({"a": jnp.zeros(2), "b": jnp.zeros(1)})
    slope = {"a": jnp.array([6.0, 0.0]), "b": jnp.array([8.0])}  # of length 10
    rung = Ladder(jnp.array(1.0), jnp.array(0.0))
    replica, *_ = both.step(None, replica, lambda params: (jnp.zeros(()), slope), rung)
    np.testing.assert_allclose(replica.params["a"], [-3.0, 0.0], rtol=1e-5)
    np.testing.assert_allclose(replica.params["b"], [-4.0], rtol=1e-5)
    again = kernels.from_spec(both.traits.spec)  # type: ignore[arg-type]
    assert again.traits.spec == both.traits.spec and again.traits.caveat is not None


def test_lengths_of_gradients_are_per_mean_loss() -> None:
    run, method = Training(epochs=3), rx.ensemble(clip_norm=0.5)
    for problem, scale in ((PROBLEM, 1), (tempered(PROBLEM), 32)):
        spec = resolve(problem, run, method).kernel.traits.spec
        assert spec is not None and spec["max_norm"] == 0.5 * scale


def plain_network() -> Network:
    """Two dense layers without a state."""

    def init(key: Any) -> tuple[Any, Any]:
        first, last = jax.random.split(key)
        return {"first": init_dense(first, 36, 4), "last": init_dense(last, 4, 3)}, {}

    def apply(params: Any, state: Any, images: Any, train: bool) -> tuple[Any, Any]:
        x = jnp.tanh(apply_dense(params["first"], images.reshape(len(images), -1)))
        return apply_dense(params["last"], x), state

    return Network(init, apply)


PLAIN = plain_network()
PROBLEM = rx.classification(PLAIN, tiny_data(), batch_size=8, augment=False, weight_decay=0.1)


class Watch:
    """An evaluation that keeps all networks, and tells how far they lie apart."""

    def __init__(self) -> None:
        self.networks: dict[int, Any] = {}

    def __call__(self, epoch: Epoch) -> dict[str, Any]:
        self.networks[epoch.number] = epoch.networks
        spread = jnp.std(epoch.networks[0]["last"]["bias"], axis=0)
        return {"spread": spread, "picked": epoch.average.weight, "n": epoch.number}


OWN = rx.Method(
    "adam-pt",
    kernel=optax.adam(1.0),
    schedule="deo_star",
    rate_schedule="cosine",
    **LADDER | {"learning_rate": (0.01, 0.05)},
)
OWN_OPTIONS: dict[str, Any] = {"method": OWN, "num_replicas": 3, "epochs": 6, "seed": 1}
OWN_OPTIONS |= {"burn_in": 1, "keep_networks": True, "progress": False}


def stop_at(step: int, seen: list[float]) -> Any:
    def callback(progress: rx.callbacks.Progress) -> str | None:
        seen.append(float(progress.average.weight))
        return "stop" if progress.step >= step else None

    return callback


def test_a_method_of_ones_own_with_numbers_of_ones_own() -> None:
    watch, seen = Watch(), []
    options = OWN_OPTIONS | {"evaluate": watch, "callback": stop_at(100, seen)}
    trained = rx.train(PROBLEM, PLAIN.init, **options)
    assert trained.method == "adam-pt" and seen[-1] == float(trained.average.weight)
    assert trained.epochs["n"].tolist() == [1, 2, 3, 4, 5, 6]
    assert trained.epochs["spread"].shape == (6, 3)
    np.testing.assert_array_equal(trained.epochs["picked"], trained.epochs["weight"])
    assert_average_of_the_coldest(trained, watch.networks)
    assert len(trained.networks.weight) == float(trained.average.weight)
    predicted = trained.predict(PROBLEM.test.inputs)
    np.testing.assert_allclose(predicted, trained.log_probabilities(), atol=2e-6)


@pytest.mark.slow
def test_a_method_of_ones_own_goes_on_bit_for_bit(tmp_path: Path) -> None:
    watch, folder = Watch(), tmp_path / "run"
    options = OWN_OPTIONS | {"evaluate": watch}
    straight = rx.train(PROBLEM, PLAIN.init, **options)
    whole = watch.networks
    watch.networks = {}
    with chunks_of(3):  # the host looks every three steps
        stopped = rx.train(PROBLEM, PLAIN.init, **options, run_dir=folder, callback=stop_at(9, []))
        assert stopped.num_steps % 4, "it must stop within an epoch"
        again = r'method=rx.Method\("adam-pt", kernel=...\)'
        for missing, given in ((again, {"evaluate": watch}), ("evaluate=...", {"method": OWN})):
            with pytest.raises(ValueError, match=f"of your own.*give it again.*{missing}"):
                rx.resume(folder, PROBLEM, **given)
        resumed = rx.resume(folder, PROBLEM, progress=False, method=OWN, evaluate=watch)
    assert_same_run(resumed, straight)
    jax.tree.map(np.testing.assert_array_equal, watch.networks, whole)
    assert resumed.method == rx.load(folder).method == "adam-pt"  # type: ignore[attr-defined]
    np.testing.assert_array_equal(resumed.epochs["spread"], straight.epochs["spread"])
    params, _ = networks_that_start_from(folder, PROBLEM)  # whatever kernel moved them
    assert_trees_close(params, whole[6][0], 1e-6)


def assert_average_of_the_coldest(trained: rx.Trained, networks: dict[int, Any]) -> None:
    """Of every epoch after the first, which is the burn-in."""
    logits = 0.0
    for epoch in range(2, 7):
        network = jax.tree.map(lambda leaf: leaf[0], networks[epoch])
        logits = logits + PROBLEM.test.outputs(*network, PROBLEM.test.inputs)
    assert float(trained.average.weight) == 5
    np.testing.assert_allclose(trained.average.logits, logits, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_tempered_sghmc_goes_on_bit_for_bit(tmp_path: Path) -> None:
    method = rx.sghmc_pt(learning_rate=0.01, swap_every=2)
    options: dict[str, Any] = {"method": method, "num_replicas": 3, "epochs": 4, "burn_in": 2}
    options |= {"keep_networks": True, "progress": False}
    straight = rx.train(PROBLEM, PLAIN.init, **options)
    rx.train(PROBLEM, PLAIN.init, **options, run_dir=tmp_path / "run", callback=stop_at(8, []))
    resumed = rx.resume(tmp_path / "run", PROBLEM, progress=False)
    assert_same_run(resumed, straight)
    predicted = resumed.predict(PROBLEM.test.inputs)
    np.testing.assert_allclose(predicted, resumed.log_probabilities(), atol=2e-6)


def test_what_an_evaluation_may_return() -> None:
    state = SimpleNamespace(step=4, replica_at=[[0]], points=jnp.zeros((1, 1)))
    inner = Evaluation(None, lambda state, carry: (state, {"nll": 1.0}), None, running=str)  # type: ignore

    def row(*returned: Any) -> Any:
        values = iter(returned)
        made = with_hook(inner, lambda epoch: next(values), steps_per_epoch=4)
        for _ in returned:
            _, row = made.evaluate(None, SimpleNamespace(state=state))  # type: ignore[arg-type]
        return row

    assert row({"f1": 0.5}) == {"nll": 1.0, "f1": 0.5}
    for returned, message in (
        ([3.0], "evaluate returned 3.0; return a dict"),
        ([{"nll": 1.0}], "nll, which is already in the table of epochs"),
        ([{"name": "good"}], "return a dict of numbers"),
        ([{"a": 1.0}, {"b": 1.0}], "the same numbers after every epoch"),
    ):
        with pytest.raises(ValueError, match=message):
            row(*returned)
