"""Steps, ladders, names and flags of `rx.sample`."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from common import in_method

import replicax as rx
from bad_inputs import (
    INF,
    NAN,
    NOT_FLAGS,
    NOT_NAMES,
    NOT_NUMBERS,
    NOT_WHOLE,
    Meant,
    Thing,
    bowl,
    crossed,
    listed,
    sample,
)
from replicax.run.options import Sampling
from replicax.run.program import Program
from replicax.run.resolve import resolve
from replicax.run.task import as_task

COUNTS = (
    "num_steps",
    "num_replicas",
    "num_chains",
    "window",
    "burn_in",
    "thin",
    "history_every",
    "checkpoint_every",
    "swap_every",
    "seed",
    "data_parallel",
)
TEMPERED: dict[str, Any] = {"rule": "metropolis", "temperature": (1.0, 2.0)}

STEPS = {
    "no steps": ({"num_steps": 0}, "num_steps"),
    "fewer than no steps": ({"num_steps": -5}, "num_steps"),
    "steps not given": ({"num_steps": None}, "num_steps"),
    "more steps than are counted": ({"num_steps": 2**31}, "num_steps"),
    "no device for a replica": ({"data_parallel": 0}, "data_parallel"),
    "rows to share without rows": ({"data_parallel": 1_000}, "data_parallel"),
    "no replicas": ({"num_replicas": 0}, "num_replicas"),
    "one replica": ({"num_replicas": 1}, "num_replicas"),
    "fewer than no replicas": ({"num_replicas": -3}, "num_replicas"),
    "replicas not given": ({"num_replicas": None}, "num_replicas"),
    "a billion replicas": ({"num_replicas": 10**9}, "num_replicas memory"),
    "a billion replicas of an exact run": (
        {"num_replicas": 10**9, "method": "posterior"},
        "num_replicas memory",
    ),
    "a billion chains": ({"num_chains": 10**9}, "num_chains memory"),
    "no chains": ({"num_chains": 0}, "num_chains"),
    "window 0": ({"window": 0}, "window"),
    "window negative": ({"window": -1}, "window"),
    "a window longer than the run": ({"window": 41}, "window 40"),
    "a schedule longer than the run": ({"schedule": rx.schedule.windowed_deo(41)}, "window 40"),
    "burn_in negative": ({"burn_in": -1}, "burn_in"),
    "burn_in of the whole run": ({"burn_in": 40}, "burn_in num_steps"),
    "burn_in beyond the run": ({"burn_in": 1000}, "burn_in num_steps"),
    "thin 0": ({"thin": 0}, "thin"),
    "thin beyond the run": ({"thin": 41}, "thin num_steps"),
    "no draw in a cycle": (
        {"kernel": rx.kernels.cyclical(rx.kernels.sgld(), 1000)},
        "draw num_steps",
    ),
    "history_every 0": ({"history_every": 0}, "history_every"),
    "checkpoint_every 0": ({"checkpoint_every": 0}, "checkpoint_every"),
    "swap_every 0": ({"swap_every": 0}, "swap_every"),
    "seed of 2**70": ({"seed": 2**70}, "seed"),
    "seed of -2**70": ({"seed": -(2**70)}, "seed"),
    "seed that another seed equals": ({"seed": 2**32}, "seed"),
    "seed not given": ({"seed": None}, "seed"),
}
LADDERS = {
    "rate 0": ({"learning_rate": 0.0}, "learning_rate"),
    "rate negative": ({"learning_rate": -0.1}, "learning_rate"),
    "rate infinite": ({"learning_rate": (0.1, INF)}, "learning_rate"),
    "rate nan in a pair": ({"learning_rate": (NAN, 0.1)}, "learning_rate"),
    "rate not given": ({"learning_rate": None}, "learning_rate"),
    "rates decrease": ({"learning_rate": (0.1, 0.01)}, "learning_rate"),
    "rates equal": ({"learning_rate": (0.1, 0.1)}, "learning_rate adapt"),
    "rates up and down": ({"learning_rate": (0.1, 0.3, 0.2)}, "learning_rate"),
    "no rates": ({"learning_rate": ()}, "learning_rate"),
    "one rate in a list": ({"learning_rate": [0.1]}, "learning_rate"),
    "too many rates": ({"learning_rate": (0.1, 0.2, 0.3, 0.4)}, "learning_rate"),
    "rates in a table": ({"learning_rate": np.ones((3, 2))}, "learning_rate"),
    "rates of words": ({"learning_rate": ("a", "b")}, "learning_rate"),
    "rates of unequal lists": ({"learning_rate": [[0.1], [0.2, 0.3]]}, "learning_rate"),
    "a function as rate": ({"learning_rate": lambda step: 0.1}, "learning_rate"),
    "rate auto for sgld": ({"learning_rate": "auto", "kernel": "sgld"}, "learning_rate"),
    "rate automatic": ({"learning_rate": "automatic"}, "learning_rate"),
    "temperature negative": ({"temperature": -1.0}, "temperature"),
    "temperatures decrease": ({"temperature": (2.0, 1.0)}, "temperature"),
    "temperatures decrease by rung": ({"temperature": (3.0, 2.0, 1.0)}, "temperature"),
    "temperatures decrease, metropolis": (
        {**TEMPERED, "temperature": (2.0, 1.0)},
        "temperature increasing",
    ),
    "temperatures equal, metropolis": ({**TEMPERED, "temperature": (1.0, 1.0)}, "temperature"),
    "temperature of one, metropolis": ({**TEMPERED, "temperature": 1.0}, "temperature"),
    "temperature infinite": ({"temperature": INF}, "temperature"),
    "temperatures up to the prior": ({**TEMPERED, "temperature": (1.0, INF)}, "temperature"),
    "temperature 0 in a pair": ({"temperature": (0.0, 1.0)}, "temperature"),
    "no temperatures": ({"temperature": []}, "temperature"),
    "too many temperatures": ({"temperature": (1, 2, 3, 4)}, "temperature"),
    "temperatures of words": ({"temperature": ("cold", "hot")}, "temperature"),
    "temperature nan by rung": ({"temperature": (1.0, NAN, 2.0)}, "temperature"),
    "swap rate 0": ({"target_swap_rate": 0}, "target_swap_rate"),
    "swap rate 1": ({"target_swap_rate": 1}, "target_swap_rate"),
    "swap rate in per cent": ({"target_swap_rate": 40}, "target_swap_rate"),
    "swap rate negative": ({"target_swap_rate": -0.4}, "target_swap_rate"),
    "swap rate by pair": ({"target_swap_rate": (0.4, 0.4)}, "target_swap_rate"),
    "buffer infinite": ({"buffer": INF}, "buffer"),
    "buffer by pair": ({"buffer": (0.1, 0.2)}, "buffer"),
    "gain negative": ({"gain": -1.0}, "gain"),
    "gain infinite": ({"gain": INF}, "gain"),
    "gain uncalled": ({"gain": rx.Gain}, "gain"),
    "gain of two arguments": ({"gain": lambda step, rung: 0.1}, "gain"),
    "gain that returns words": ({"gain": lambda step: "fast"}, "gain"),
    "gain that returns an array": ({"gain": lambda step: jnp.ones(3)}, "gain"),
    "buffer gain negative": ({"buffer_gain": -0.5}, "buffer_gain"),
    "buffer gain that returns nothing": ({"buffer_gain": lambda step: None}, "buffer_gain"),
    "adapt negative": ({"adapt": -1}, "adapt"),
    "adapt in words": ({"adapt": "yes"}, "adapt"),
    "adapt half a step": ({"adapt": 2.5}, "adapt"),
    "adapt a list": ({"adapt": [True]}, "adapt"),
}
PARTS = {
    "schedule uncalled": ({"schedule": rx.schedule.deo}, "schedule"),
    "schedule a class": ({"schedule": rx.schedule.WindowedDEO}, "schedule"),
    "a rule as schedule": ({"schedule": rx.swap.metropolis()}, "schedule"),
    "a window of deo": ({"schedule": "deo", "window": 2}, "window schedule"),
    "a window said twice": (
        {"schedule": rx.schedule.windowed_deo(3), "window": 2},
        "window schedule",
    ),
    "alternate with three": (
        {"schedule": rx.schedule.windowed_deo(3, alternate=False)},
        "alternate",
    ),
    "rule uncalled": ({"rule": rx.swap.metropolis}, "rule"),
    "rule a class": ({"rule": rx.swap.Metropolis}, "rule"),
    "a schedule as rule": ({"rule": rx.schedule.deo()}, "rule"),
    "rule without its number": ({"rule": "window_corrected"}, "rule window_correction"),
    "noise of too many pairs": (
        {**TEMPERED, "rule": rx.swap.bias_corrected((0.1, 0.2, 0.3))},
        "energy_noise_std",
    ),
    "kernel uncalled": ({"kernel": rx.kernels.sgld}, "kernel"),
    "an optimiser uncalled": ({"kernel": optax.sgd}, "kernel"),
    "an optimiser with a rate": ({"kernel": optax.sgd(0.1)}, "kernel learning rate 0.1"),
    "adam with a rate": ({"kernel": optax.adam(1e-3)}, "kernel learning rate 0.001"),
    "a chain with a rate": (
        {"kernel": optax.chain(optax.clip(1.0), optax.sgd(0.5, momentum=0.9))},
        "kernel learning rate 0.5",
    ),
    "adamw with a rate": ({"kernel": optax.adamw(0.01)}, "kernel learning rate 0.01"),
    "hmc with mini-batch rules": (
        {"kernel": "hmc", "energy_at": "before", **TEMPERED},
        "energy_at",
    ),
    "before with metropolis": ({**TEMPERED, "energy_at": "before"}, "energy_at"),
    "a reset under metropolis": (
        {**TEMPERED, "kernel": "momentum", "on_swap": "reset"},
        "on_swap",
    ),
    "weight decay unseen": (
        {**TEMPERED, "kernel": rx.kernels.sgld(weight_decay=0.1)},
        "weight decay",
    ),
    "preconditioned without burn-in": ({**TEMPERED, "kernel": "preconditioned"}, "burn_in"),
    "all rows of no rows": ({"energy_at": "all_rows"}, "energy_at rx.bayesian"),
    "draws of one rung": ({"draw_rungs": 0}, "draw_rungs"),
    "draws without the target": ({"draw_rungs": (1,)}, "draw_rungs"),
    "draws of a rung twice": ({"draw_rungs": (0, 1, 1)}, "draw_rungs"),
    "draws of no such rung": ({"draw_rungs": (0, 3)}, "draw_rungs"),
    "draws of no rung": ({"draw_rungs": ()}, "draw_rungs"),
    "draws of half a rung": ({"draw_rungs": (0, 1.5)}, "draw_rungs"),
    "draws of rungs in words": ({"draw_rungs": (0, "hot")}, "draw_rungs"),
    "draws of some": ({"draw_rungs": "some"}, "draw_rungs"),
    "draws of an object": ({"draw_rungs": Thing()}, "draw_rungs"),
    "no folder": ({"run_dir": ""}, "run_dir"),
    "a folder of blanks": ({"run_dir": "  "}, "run_dir"),
    "a number as folder": ({"run_dir": 3}, "run_dir"),
    "a flag as folder": ({"run_dir": True}, "run_dir"),
    "a list as folder": ({"run_dir": ["a"]}, "run_dir"),
    "a folder below a file": ({"run_dir": Path(__file__) / "run"}, "run_dir"),
    "a file as folder": ({"run_dir": __file__}, "run_dir"),
    "a folder with a zero byte": ({"run_dir": "a\0b"}, "run_dir"),
    "callback no function": ({"callback": 3}, "callback"),
    "callback in words": ({"callback": "stop"}, "callback"),
    "callback without an argument": ({"callback": lambda: None}, "callback"),
    "a method of networks": ({"method": "cyc-swag"}, "method rx.train"),
    "a method without its rates": ({"method": "deo-star"}, "method=rx.deo_star(learning_rate="),
    "a method uncalled, without its rates": ({"method": rx.deo}, "method=rx.deo(learning_rate="),
    "epochs": ({"rate_schedule": "cosine"}, "rate_schedule rx.train"),
    "a warm-up of epochs": ({"warmup_epochs": 2}, "warmup_epochs rx.train"),
    "a part of no method": ({"method": "posterior", "windw": 3}, "windw"),
}


BESIDE: dict[str, tuple[dict[str, Any], str]] = {
    "a rate": ({"learning_rate": 0.1}, "learning_rate method=rx.posterior( method=rx.deo_star("),
    "a window and a rule": (
        {"window": 3, "rule": "deterministic"},
        "window rule method=rx.deo_star(",
    ),
    "a swap energy and a rate": ({"swap_energy": "full", "learning_rate": 0.1}, "learning_rate"),
    "a misspelt option": ({"num_step": 3}, "num_step num_steps"),
    "an option of networks": ({"epochs": 3}, "epochs"),
}


def beside(**options: Any) -> rx.Posterior:
    """Options of a method beside those of the run, where they stood in other versions."""
    return rx.sample(bowl, jnp.zeros(2), **{"num_steps": 40, "num_replicas": 3} | options)


def program(**options: Any) -> Program:
    chosen = {"num_steps": 40, "num_replicas": 3, "learning_rate": (0.01, 0.1), **options}
    chosen = in_method(chosen)
    method = chosen.pop("method")
    return resolve(as_task(bowl), Sampling(**chosen), method)


def _rates(program: Program) -> list[float]:
    return np.round(program.ladder.learning_rate, 6).tolist()


def _temperatures(program: Program) -> list[float]:
    return np.asarray(program.ladder.temperature).tolist()


MEANT = [
    Meant(
        "sample: one rate",
        lambda: program(learning_rate=0.1),
        "every rung has it",
        lambda p: _rates(p) == [0.1, 0.1, 0.1],
    ),
    Meant(
        "sample: a list of two rates",
        lambda: program(learning_rate=[0.01, 1]),
        "coldest and hottest, as a tuple would be",
        lambda p: _rates(p) == [0.01, 0.1, 1.0],
    ),
    Meant(
        "sample: numbers of NumPy",
        lambda: program(num_steps=np.int32(40), seed=np.int64(3), burn_in=np.uint8(2)),
        "they are whole numbers",
        lambda p: (p.seed, p.burn_in) == (3, 2),
    ),
    Meant(
        "sample: one temperature",
        lambda: program(temperature=2),
        "that of the coldest rung, SGD above",
        lambda p: _temperatures(p) == [2.0, 0.0, 0.0],
    ),
    Meant(
        "sample: temperatures that fall to 0",
        lambda: program(temperature=(1.0, 0.0, 0.0)),
        "rungs of temperature 0 are SGD, above a cold one with noise",
        lambda p: _temperatures(p) == [1.0, 0.0, 0.0],
    ),
    Meant(
        "sample: draw_rungs all",
        lambda: program(draw_rungs="all"),
        "every rung",
        lambda p: p.draw_rungs == (0, 1, 2),
    ),
    Meant(
        "sample: draw_rungs a range",
        lambda: program(draw_rungs=range(2)),
        "the rungs in it",
        lambda p: p.draw_rungs == (0, 1),
    ),
    Meant(
        "sample: a window of the whole run",
        lambda: program(window=40),
        "one window",
        lambda p: p.settings.schedule.window == 40,
    ),
    Meant(
        "sample: a buffer of 0",
        lambda: program(buffer=0),
        "a number, not left out",
        lambda p: p.buffer == 0 and not p.settings.tuning.measure_buffer,
    ),
    Meant(
        "sample: adapt 0",
        lambda: program(adapt=0),
        "nothing adapts",
        lambda p: p.settings.tuning.adapts is None,
    ),
    Meant(
        "sample: an optimiser of rate 1",
        lambda: program(kernel=optax.chain(optax.clip(0.1), optax.adam(1.0))),
        "the rung supplies the rate",
        lambda p: p.kernel.traits.spec is None,
    ),
    Meant(
        "sample: parts of a method that are None",
        lambda: program(buffer=None, gain=None, target_swap_rate=None, schedule=None),
        "left open, as where they are left out",
        lambda p: p.method == program(schedule=None).method and not p.settings.schedule.exchanges,
    ),
    Meant(
        "sample: one replica without exchange",
        lambda: program(num_replicas=1, schedule="none", learning_rate=0.1),
        "a single chain",
        lambda p: p.num_replicas == 1,
    ),
    Meant(
        "sample: seed negative",
        lambda: program(seed=-1),
        "a seed like others",
        lambda p: p.seed == -1,
    ),
    Meant(
        "sample: as many rates as rungs",
        lambda: program(num_replicas=None, learning_rate=(0.1, 0.2, 0.3, 0.4)),
        "they tell the number of replicas",
        lambda p: p.num_replicas == 4,
    ),
]
ROWS = [
    *crossed("sample", sample, COUNTS, NOT_WHOLE),
    *crossed("sample", sample, ("learning_rate", "temperature", "target_swap_rate"), NOT_NUMBERS),
    *crossed("sample", sample, ("buffer", "gain", "buffer_gain"), NOT_NUMBERS),
    *crossed("sample", sample, ("schedule", "rule", "kernel"), NOT_NAMES),
    *crossed("sample", sample, ("energy_at", "on_swap", "on_nonfinite"), NOT_NAMES),
    *crossed("sample", sample, ("keep_draws", "progress"), NOT_FLAGS),
    *listed("sample", sample, STEPS),
    *listed("sample", sample, LADDERS),
    *listed("sample", sample, PARTS),
    *crossed("sample", sample, ("method",), NOT_NAMES | {"none": None}),
    *listed("sample, beside its method", beside, BESIDE),
    *listed("deo_star", rx.deo_star, {"a part misspelt": ({"windw": 3}, "windw window")}),
    *listed("Method", rx.Method, {"no name": ({"name": ""}, "name")}),
    *MEANT,
]
