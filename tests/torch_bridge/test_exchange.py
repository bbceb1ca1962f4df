"""The exchange of PyTorch models decides as the JAX engine does, and sets learning rates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_bridge.exchanges import (  # noqa: E402
    LADDER,
    NUM_REPLICAS,
    make_optimizers,
    rates_of,
    told_losses,
    watch,
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


def test_every_optimizer_steps_with_the_rate_of_its_rung() -> None:
    """Groups keep their ratios to the first, and between steps what they had."""
    optimizers = make_optimizers()
    added = {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.02, "weight_decay": 1.0}
    optimizers[1].add_param_group(added)
    exchange = rx.torch.Exchange(optimizers, **LADDER)
    assert exchange.cold == 0 and exchange.rung_of == list(range(NUM_REPLICAS))
    ladder, seen = exchange.learning_rates, watch(optimizers)
    np.testing.assert_allclose([ladder[0], ladder[-1]], [0.005, 0.02])
    for row in told_losses(200):
        exchange.step([torch.tensor(value, requires_grad=True) for value in row])
        for number, optimizer in enumerate(optimizers):
            rate = exchange.learning_rates[exchange.rung_of[number]]
            optimizer.step()
            assert seen[number][-1] == [rate, pytest.approx(rate / 5)][: 1 + (number == 1)]
            assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.02][
                : 1 + (number == 1)
            ]
    assert exchange.cold == exchange.rung_of.index(0) == exchange.cold_here
    assert exchange.index_paths.shape == (200, NUM_REPLICAS)
    assert len(exchange.history["step"]) == 4


def test_a_resumed_exchange_goes_on_exactly(tmp_path) -> None:
    losses = told_losses()
    whole = rx.torch.Exchange(make_optimizers(), **LADDER, schedule="seo")
    for row in losses[:333]:
        whole.step(row)
    torch.save(whole.state_dict(), tmp_path / "exchange.pt")
    optimizers = make_optimizers(lr=0.5)
    resumed = rx.torch.Exchange(optimizers, **LADDER, schedule="seo")
    resumed.load_state_dict(torch.load(tmp_path / "exchange.pt"))
    for optimizer in optimizers:
        optimizer.param_groups[0]["lr"] = 0.05  # half of the first rate of the other
    assert resumed.num_steps == 333 and resumed.factor == 0.5
    for row in losses[333:]:
        whole.step(row)
        resumed.step(row)
    np.testing.assert_array_equal(resumed.index_paths, whole.index_paths)
    assert resumed.summary() == {**whole.summary(), "factor": 0.5}
    for name, values in whole.history.items():
        np.testing.assert_array_equal(resumed.history[name], values)
    rates = 0.5 * resumed.learning_rates[resumed.rung_of]
    np.testing.assert_array_equal(rates_of(optimizers), rates)
    other = rx.torch.Exchange(make_optimizers(), **LADDER)
    for state, message in [
        (whole.state_dict(), "'schedule': 'seo'.*'schedule': 'deo_star'.*same argum"),
        ({"step": 3}, "state_dict"),
        ({**other.state_dict(), "format": 1}, "format 1, .* version of replicax that saved"),
    ]:
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(state)
    assert other.num_steps == 0


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
