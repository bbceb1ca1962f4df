"""What an exchange of PyTorch models is given: losses of every kind; what is wrong is refused."""

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_bridge.exchanges import (  # noqa: E402
    LADDER,
    assert_same_state,
    make_optimizers,
    rates_of,
    told_losses,
)

import replicax as rx  # noqa: E402

BAD = {
    "no list": (lambda: dict(optimizers=3), "optimizers is 3; give a list"),
    "a model": (lambda: dict(optimizers=[torch.nn.Linear(1, 1)] * 2), r"optimizers\[0\] is"),
    "one": (lambda: dict(optimizers=make_optimizers(1)), "num_replicas is 1"),
    "twice": (lambda: dict(optimizers=make_optimizers(1) * 2), "share a parameter"),
    "LBFGS": (lambda: dict(optimizers=make_optimizers(2, torch.optim.LBFGS)), "is LBFGS"),
    "Rprop": (lambda: dict(optimizers=make_optimizers(2, torch.optim.Rprop)), "is Rprop"),
    "whole": (
        lambda: dict(optimizers=make_optimizers(2, lr=torch.tensor(1))),
        r"lr of optimizers\[0\] is a tensor of torch.int64",
    ),
    "rates": (lambda: dict(learning_rate=None), "learning_rate is None"),
    "auto": (lambda: dict(learning_rate="auto"), "learning_rate is 'auto'"),
    "decreasing": (lambda: dict(learning_rate=(0.1, 0.01)), "must not decrease"),
    "too many": (lambda: dict(learning_rate=[0.1, 0.2, 0.3]), r"learning_rate has shape \(3,\)"),
    "rate": (lambda: dict(target_swap_rate=2), "target_swap_rate is 2"),
    "sweep": (lambda: dict(schedule="ape"), 'schedule is "ape"'),
    "misspelt": (lambda: dict(schedule="deo_sta"), "Did you mean 'deo_star'"),
    "on_swap": (lambda: dict(on_swap="drop"), "on_swap is 'drop'"),
    "restart": (lambda: dict(on_nonfinite="restart"), "on_nonfinite is 'restart'"),
    "history": (lambda: dict(history_every=0), "history_every is 0"),
    "adam": (
        lambda: dict(optimizers=make_optimizers(2, torch.optim.Adam), temperature=0.1),
        r"optimizers\[0\] is Adam: Langevin noise needs torch.optim.SGD",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_exchange_is_refused_in_a_sentence(name) -> None:
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        rx.torch.Exchange(
            **{"optimizers": make_optimizers(2), "learning_rate": (0.1, 0.2)} | make()
        )


BAD_LOSSES = [
    ([1.0], "losses are 1 numbers, and there are 2 optimizers"),
    ([1.0, 2.0, 3.0], "losses are 3 numbers"),
    (1.0, "losses are 1.0"),
    (torch.ones(3), r"losses are of shape \(3,\)"),
    ([1.0, torch.ones(4)], r"losses\[1\] has shape \(4,\)"),
    ([1.0, None], r"losses\[1\] is None"),
    ([1.0, math.nan], r"losses\[1\] is nan"),
    ([torch.tensor(math.inf), 1.0], r"losses\[0\] is inf"),
    ([math.inf, -math.inf], r"losses\[0\] is inf"),
    ([1e39, -1e39], r"losses\[0\] is 1e\+39"),
    ([1j, 2.0], r"losses\[0\] is 1j"),
    ([torch.tensor(1j)] * 2, r"losses\[0\] is 1j"),
    ([torch.tensor(True)] * 2, r"losses\[0\] is True"),
    (torch.tensor([1j, 2.0]), r"losses\[0\] is 1j"),
    (np.array(["a", "b"]), r"losses\[0\] is 'a'"),
    ([torch.ones(2)] * 2, r"losses\[0\] has shape \(2,\)"),
]


def test_bad_losses_are_refused_and_nothing_swaps() -> None:
    optimizers = make_optimizers(2)
    exchange = rx.torch.Exchange(optimizers, (0.1, 0.2), window=1)
    exchange.step([3.0, 1.0])  # the only pair is active in the next step
    before, rungs = exchange.state_dict(), exchange.rung_of
    for losses, message in BAD_LOSSES:
        with pytest.raises(ValueError, match=message):
            exchange.step(losses)
        assert exchange.rung_of == rungs
        assert_same_state(exchange, before)
    exchange.step([3.0, 1.0])
    assert exchange.rung_of == [1, 0]


GOOD_LOSSES = {
    "scalars": lambda row: [torch.tensor(x) for x in row],
    "gradients": lambda row: [torch.tensor(x, requires_grad=True) * 1 for x in row],
    "shape (1,)": lambda row: [torch.tensor([x]) for x in row],
    "float64": lambda row: torch.tensor(row, dtype=torch.float64),
    "bfloat16": lambda row: [torch.tensor(x, dtype=torch.bfloat16) for x in row],
    "float16": lambda row: np.array(row, np.float16),
    "whole": lambda row: [torch.tensor(int(x)) for x in row],
    "mixed": lambda row: (torch.tensor(row[0]), row[1], np.float32(row[2])),
}


def test_losses_of_every_kind_decide_as_floats_do() -> None:
    rows = np.random.default_rng(1).integers(-4, 5, size=(8, 3)).astype(float).tolist()
    told_floats = rx.torch.Exchange(make_optimizers(3), **LADDER, window=1)
    others = {x: rx.torch.Exchange(make_optimizers(3), **LADDER, window=1) for x in GOOD_LOSSES}
    for row in rows:
        told_floats.step(row)
        for name, exchange in others.items():
            exchange.step(GOOD_LOSSES[name](row))
    with torch.inference_mode():
        told = [torch.tensor(x) for x in rows[0]]
    told_floats.step(rows[0])
    assert len(np.unique(told_floats.index_paths, axis=0)) > 2, "hardly a swap"
    for name, exchange in others.items():
        exchange.step(told)
        assert exchange.summary() == told_floats.summary(), name


def test_a_group_that_is_added_takes_part() -> None:
    optimizers = make_optimizers(2)
    exchange = rx.torch.Exchange(optimizers, (0.1, 0.2))
    exchange.step([1.0, 2.0])
    for more in ({}, {"lr": 0.05}):
        added = {"params": [torch.zeros(1, requires_grad=True)], **more}
        optimizers[1].add_param_group(added)
    exchange.step([1.0, 2.0])
    ladder = exchange.learning_rates[exchange.rung_of].tolist()
    assert rates_of(optimizers) == [ladder[0], ladder[1], ladder[1], ladder[1] / 2]


def test_an_exchange_is_not_copied() -> None:
    exchange = rx.torch.Exchange(make_optimizers(2), (0.1, 0.2))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"save state_dict\(\)"):
            copied(exchange)


def test_a_broken_state_is_refused_whole() -> None:
    saved = rx.torch.Exchange(make_optimizers(2), (0.1, 0.2), history_every=1)
    saved.step([2.0, 1.0])
    exchange = rx.torch.Exchange(make_optimizers(2), (0.1, 0.2), history_every=1)
    before = exchange.state_dict()
    breaks = {
        "arrays": lambda state: state.pop("arrays"),
        "options": lambda state: state.pop("options"),
        "buffer": lambda state: state["history"].pop("buffer"),
        "numpy": lambda state: state.update(paths=state["paths"].numpy()),
        "paths": lambda state: state.update(paths=state["paths"][:, :1]),
        "shape": lambda state: state["history"].update(buffer=torch.zeros(1, 5)),
        "rung_of": lambda state: state["arrays"].pop(".state.rung_of"),
    }
    for name, break_it in breaks.items():
        state = saved.state_dict()
        break_it(state)
        with pytest.raises(ValueError, match="state|rows"):
            exchange.load_state_dict(state)
        assert_same_state(exchange, before)
        assert (exchange.num_steps, len(exchange.history["step"])) == (0, 0), name
    exchange.load_state_dict(saved.state_dict())
    assert exchange.num_steps == 1


def test_a_jax_without_a_cpu_is_told_what_to_do(monkeypatch) -> None:
    def local_devices(backend):
        raise RuntimeError("Unknown backend cpu")

    monkeypatch.setattr("jax.local_devices", local_devices)
    with pytest.raises(RuntimeError, match="JAX_PLATFORMS=cuda,cpu"):
        rx.torch.Exchange(make_optimizers(2), (0.1, 0.2))


def test_an_exchange_steps_in_another_thread() -> None:
    here, there = [rx.torch.Exchange(make_optimizers(3), **LADDER) for _ in range(2)]
    rows = told_losses(20, 3).tolist()
    with ThreadPoolExecutor(1) as thread:
        for row in rows:
            here.step(row)
            thread.submit(there.step, row).result()
    assert there.summary() == here.summary()
