"""The exchange of PyTorch models decides as the JAX engine does, and sets learning rates."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_bridge.exchanges import (  # noqa: E402
    LADDER,
    NUM_REPLICAS,
    assert_same_state,
    make_optimizers,
    rates_of,
    told_losses,
)

import replicax as rx  # noqa: E402


def run_engine(losses: np.ndarray, **options) -> rx.Posterior:
    """The engine on replicas that stand still, whose energies a batch tells."""
    kernel = rx.kernels.Kernel(
        init=lambda params: rx.kernels.Replica(params, ()),
        step=lambda noise, replica, evaluate, rung: (replica, evaluate(replica.params)[0], None),
        draw=lambda key, replica: jnp.zeros(()),
    )
    steps = jnp.asarray(losses)
    num_steps, num_replicas = losses.shape
    defaults = dict(
        gain=rx.Gain(600.0, 1000.0), buffer=0.1, buffer_gain=rx.Gain(60.0, 1000.0, cap=0.05)
    )
    choices = {**defaults, **LADDER, **options}
    of_run = {name: choices.pop(name) for name in ("history_every", "seed") if name in choices}
    choices = {"schedule": "deo_star", **choices}
    return rx.sample(
        lambda number, row: row[number.astype(int)] + 0 * number,
        rx.per_replica(jnp.arange(num_replicas, dtype=jnp.float32), by_chain=False),
        num_steps=num_steps,
        num_replicas=num_replicas,
        batches=lambda step: steps[step],
        method=rx.Method("told", temperature=0.0, kernel=kernel, energy_at="before", **choices),
        on_nonfinite="ignore",
        **of_run,
    )


@pytest.mark.filterwarnings("ignore::replicax.errors.RunProblem")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": 7, "adapt": 300},
        {"schedule": "seo", "seed": 3},
        {"schedule": "exactly_one", "window": 9, "buffer": "auto", "buffer_gain": "auto"},
    ],
    ids=["paper", "window", "drawn", "measured"],
)
def test_decisions_are_those_of_the_engine(options) -> None:
    losses = told_losses()
    losses[100, 2] = np.nan
    with jax.default_device(jax.devices("cpu")[0]):  # as the exchange; a GPU rounds otherwise
        engine = run_engine(losses, **options)
    exchange = rx.torch.Exchange(make_optimizers(), on_nonfinite="ignore", **{**LADDER, **options})
    for row in losses:
        exchange.step(row.tolist())
    np.testing.assert_array_equal(exchange.index_paths, engine.rung_of[0])
    assert len(np.unique(exchange.index_paths, axis=0)) > 10, "nothing swapped"
    for name in ("step", "learning_rate", "buffer", "verdicts", "windows", "window_swaps"):
        expected = engine.history[name]
        expected = expected if name == "step" else expected[0]
        np.testing.assert_array_equal(exchange.history[name], expected, name)
    summary = exchange.summary()
    assert summary["window"] == engine.window
    assert summary["round_trips"] == engine.round_trips[0]
    np.testing.assert_allclose(summary["verdict_rate"], engine.verdict_rate[0])
    np.testing.assert_allclose(summary["window_swap_rate"], engine.window_swap_rate[0])


def test_every_optimizer_has_the_rate_of_its_rung() -> None:
    optimizers = make_optimizers()
    groups = {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.1, "weight_decay": 1.0}
    optimizers[1].add_param_group(groups)
    exchange = rx.torch.Exchange(optimizers, **LADDER)
    assert exchange.cold == 0 and exchange.rung_of == list(range(NUM_REPLICAS))
    ladder = exchange.learning_rates
    np.testing.assert_allclose([ladder[0], ladder[-1]], [0.005, 0.02])
    for row in told_losses(200):
        exchange.step([torch.tensor(value, requires_grad=True) for value in row])
        for number, optimizer in enumerate(optimizers):
            rate = exchange.learning_rates[exchange.rung_of[number]]
            assert {group["lr"] for group in optimizer.param_groups} == {float(rate)}
    assert exchange.cold == exchange.rung_of.index(0) == exchange.cold_here
    assert exchange.index_paths.shape == (200, NUM_REPLICAS)
    assert len(exchange.history["step"]) == 4


def test_rates_in_tensors_are_filled_in_place() -> None:
    rates = [torch.tensor(0.1) for _ in range(3)]
    optimizers = [make_optimizers(1, torch.optim.Adam, lr=rate)[0] for rate in rates]
    exchange = rx.torch.Exchange(optimizers, **LADDER)
    for row in told_losses(20, 3):
        exchange.step(torch.tensor(row))
    for number, rate in enumerate(rates):
        assert optimizers[number].param_groups[0]["lr"] is rate
        assert float(rate) == float(exchange.learning_rates[exchange.rung_of[number]])
    for rate in rates:
        rate.mul_(0.5)
    exchange.step(told_losses(1, 3)[0])
    assert exchange.factor == pytest.approx(0.5)


def test_a_resumed_exchange_goes_on_exactly(tmp_path) -> None:
    losses = told_losses()
    whole = rx.torch.Exchange(make_optimizers(), **LADDER, schedule="seo")
    for row in losses[:333]:
        whole.step(row)
    whole.factor = 0.5
    torch.save(whole.state_dict(), tmp_path / "exchange.pt")
    optimizers = make_optimizers()
    resumed = rx.torch.Exchange(optimizers, **LADDER, schedule="seo")
    resumed.load_state_dict(torch.load(tmp_path / "exchange.pt"))
    assert resumed.num_steps == 333
    for row in losses[333:]:
        whole.step(row)
        resumed.step(row)
    np.testing.assert_array_equal(resumed.index_paths, whole.index_paths)
    assert resumed.summary() == whole.summary()
    for name, values in whole.history.items():
        np.testing.assert_array_equal(resumed.history[name], values)
    rates = 0.5 * resumed.learning_rates[resumed.rung_of]
    np.testing.assert_allclose(rates_of(optimizers), rates, rtol=1e-6)
    older = whole.state_dict()  # version 0.2 stored further options
    older["options"] = json.dumps(json.loads(older["options"]) | {"num_steps": 3, "thin": 1})
    resumed.load_state_dict(older)
    other = rx.torch.Exchange(make_optimizers(), **LADDER)
    with pytest.raises(ValueError, match="'schedule': 'seo'.*'schedule': 'deo_star'.*same argum"):
        other.load_state_dict(whole.state_dict())
    with pytest.raises(ValueError, match="state_dict"):
        other.load_state_dict({"step": 3})
    assert other.num_steps == 0


SCHEDULERS = torch.optim.lr_scheduler


def step_all(optimizers, schedulers) -> None:
    for optimizer, scheduler in zip(optimizers, schedulers):
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("made", ["before", "after"])
@pytest.mark.parametrize(
    ("make", "factor"),
    [
        (lambda x: SCHEDULERS.StepLR(x, step_size=4, gamma=0.1), 0.01),
        (lambda x: SCHEDULERS.LinearLR(x, start_factor=0.25, total_iters=4), 1.0),
    ],
    ids=["step", "warmup"],
)
def test_schedulers_that_multiply_rates_multiply_the_ladder(made, make, factor) -> None:
    optimizers = make_optimizers(3)
    if made == "before":
        schedulers = [make(optimizer) for optimizer in optimizers]
    exchange = rx.torch.Exchange(optimizers, **LADDER)
    if made == "after":
        schedulers = [make(optimizer) for optimizer in optimizers]
    for row in told_losses(8, 3):
        step_all(optimizers, schedulers)
        exchange.step(row)
    assert exchange.factor == pytest.approx(factor)
    rates = factor * exchange.learning_rates[exchange.rung_of]
    np.testing.assert_allclose(rates_of(optimizers), rates, rtol=1e-5)


def test_schedulers_that_set_rates_are_refused_and_nothing_swaps() -> None:
    optimizers = make_optimizers(3)
    exchange = rx.torch.Exchange(optimizers, **LADDER)
    schedulers = [SCHEDULERS.LambdaLR(one, lambda step: 0.9**step) for one in optimizers]
    for scheduler in schedulers:
        scheduler.base_lrs = [0.1]
    step_all(optimizers, schedulers)
    before = exchange.state_dict()
    with pytest.raises(ValueError, match="multiplied by .*StepLR.* exchange.factor"):
        exchange.step([1.0, 2.0, 3.0])
    assert_same_state(exchange, before)


def fill_memory(optimizers) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.grad = torch.ones_like(param)
        optimizer.step()


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_a_swap_keeps_memory_or_resets_it(make) -> None:
    momentum = {"momentum": 0.9} if make is torch.optim.SGD else {}
    name = "momentum_buffer" if make is torch.optim.SGD else "exp_avg"
    for on_swap in ("keep", "reset"):
        optimizers = make_optimizers(3, make, **momentum)
        exchange = rx.torch.Exchange(optimizers, (0.01, 0.1), window=1, on_swap=on_swap)
        exchange.step([0.0, 0.0, 0.0])  # the other pair's window
        fill_memory(optimizers)
        exchange.step([9.0, 0.0, 5.0])  # replicas 0 and 1 swap
        assert exchange.rung_of == [1, 0, 2]
        for number, optimizer in enumerate(optimizers):
            gone = on_swap == "reset" and number < 2
            for memory in optimizer.state.values():
                assert bool((memory[name] == 0).all()) == gone, (on_swap, number)
