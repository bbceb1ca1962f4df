"""Constructors that people build samplers from: schedules, rules, kernels, targets, theory."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx
from bad_inputs import (
    INF,
    NAN,
    NOT_NAMES,
    NOT_NUMBERS,
    NOT_WHOLE,
    Meant,
    Refused,
    Thing,
    crossed,
    listed,
)
from replicax import theory
from replicax.algorithm.ladder import geometric
from replicax.theory import planner

SGLD = rx.kernels.sgld()
NUMBERS_BELOW_0 = {**NOT_NUMBERS, "negative": -0.1, "inf": INF}


def cyclical(**options: Any) -> Any:
    return rx.kernels.cyclical(**{"kernel": SGLD, "cycle_length": 10} | options)


def annealed(**options: Any) -> Any:
    return rx.kernels.annealed(**{"kernel": SGLD, "num_steps": 10} | options)


def stepwise(**options: Any) -> Any:
    return rx.kernels.stepwise(**{"kernel": SGLD, "falls": [3], "factor": 0.5} | options)


def window_corrected(**options: Any) -> Any:
    return rx.swap.window_corrected(**{"window_correction": 0.1} | options)


def plan(**options: Any) -> Any:
    return planner.plan(**{"num_replicas": 8, "target_swap_rate": 0.4} | options)


def of_optax(**options: Any) -> Any:
    return rx.kernels.from_optax(**{"transform": optax.sgd(1.0)} | options)


LISTED: dict[str, tuple[Any, dict[str, tuple[dict[str, Any], str]]]] = {
    "windowed_deo": (
        rx.schedule.windowed_deo,
        {"window 0": ({"window": 0}, "window"), "window -1": ({"window": -1}, "window")},
    ),
    "bias_corrected": (
        rx.swap.bias_corrected,
        {
            "negative": ({"energy_noise_std": -1.0}, "energy_noise_std"),
            "one negative": ({"energy_noise_std": (1.0, -1.0)}, "energy_noise_std"),
            "in words": ({"energy_noise_std": "estimat"}, "energy_noise_std"),
            "every 0": ({"estimate_every": 0}, "estimate_every"),
            "draws 1": ({"estimate_draws": 1}, "estimate_draws"),
        },
    ),
    "window_corrected": (
        window_corrected,
        {
            "not given": ({"window_correction": None}, "window_correction"),
            "infinite": ({"window_correction": INF}, "window_correction"),
            "a pair": ({"window_correction": (1.0, 2.0)}, "window_correction"),
            "found by the run": ({"window_correction": "auto"}, "window_correction"),
        },
    ),
    "momentum": (
        rx.kernels.momentum,
        {"decay 1": ({"decay": 1.0}, "decay"), "decay 1.5": ({"decay": 1.5}, "decay")},
    ),
    "sghmc": (
        rx.kernels.sghmc,
        {
            "friction 0": ({"friction": 0.0}, "friction"),
            "friction 2": ({"friction": 2.0}, "friction"),
        },
    ),
    "preconditioned": (
        rx.kernels.preconditioned,
        {
            "decay 1": ({"decay": 1.0}, "decay"),
            "eps 0": ({"eps": 0.0}, "eps"),
            "freeze_after 0": ({"freeze_after": 0}, "freeze_after"),
        },
    ),
    "hmc": (
        rx.kernels.hmc,
        {
            "no leapfrog": ({"num_leapfrog": 0}, "num_leapfrog"),
            "acceptance 0": ({"target_acceptance": 0}, "target_acceptance"),
            "acceptance 1": ({"target_acceptance": 1}, "target_acceptance"),
        },
    ),
    "cyclical": (
        cyclical,
        {
            "one step": ({"cycle_length": 1}, "cycle_length"),
            "exploitation 0": ({"exploitation": 0.0}, "exploitation"),
            "exploitation 2": ({"exploitation": 2.0}, "exploitation"),
            "hold a number": ({"hold": 1}, "hold"),
            "around a name": ({"kernel": "sgld"}, "kernel"),
            "around hmc": ({"kernel": rx.kernels.hmc()}, "hmc"),
        },
    ),
    "annealed": (
        annealed,
        {
            "no steps": ({"num_steps": 0}, "num_steps"),
            "heated": ({"temperature": 2.0}, "temperature"),
            "rate 0": ({"learning_rate": 0.0}, "learning_rate"),
            "around nothing": ({"kernel": None}, "kernel"),
        },
    ),
    "stepwise": (
        stepwise,
        {
            "factor 0": ({"factor": 0.0}, "factor"),
            "falls before the start": ({"falls": [-1]}, "falls"),
            "falls a number": ({"falls": 3}, "falls"),
            "falls in words": ({"falls": ["a"]}, "falls"),
            "around a function": ({"kernel": rx.kernels.sgld}, "kernel"),
        },
    ),
    "from_optax": (
        of_optax,
        {
            "no transform": ({"transform": 3}, "transform"),
            "uncalled": ({"transform": optax.adam}, "transform"),
            "a rate of its own": ({"transform": optax.sgd(0.1)}, "transform learning rate"),
            "weight decay negative": ({"weight_decay": -1.0}, "weight_decay"),
        },
    ),
    "Gain": (
        rx.Gain,
        {
            "offset 0": ({"offset": 0.0}, "offset"),
            "power 2": ({"power": 2.0}, "power"),
            "cap 0": ({"cap": 0.0}, "cap"),
            "scale negative": ({"scale": -1.0}, "scale"),
        },
    ),
    "gaussian": (
        rx.targets.gaussian,
        {"std 0": ({"std": 0.0}, "std"), "mean nan": ({"mean": NAN}, "mean")},
    ),
    "geometric": (
        lambda **o: geometric(**{"cold": 1.0, "hot": 2.0, "num_replicas": 3} | o),
        {
            "cold 0": ({"cold": 0.0}, "cold"),
            "hot negative": ({"hot": -1.0}, "hot"),
            "none": ({"num_replicas": 0}, "num_replicas"),
        },
    ),
    "round_trip_time": (
        lambda **o: theory.round_trip_time(**{"rejection_rate": 0.5, "num_replicas": 4} | o),
        {
            "rate 1": ({"rejection_rate": 1.0}, "rejection_rate"),
            "rate nan": ({"rejection_rate": NAN}, "rejection_rate"),
            "rate in words": ({"rejection_rate": "half"}, "rejection_rate"),
            "replicas not given": ({"num_replicas": None}, "num_replicas"),
            "one replica": ({"num_replicas": 1}, "num_replicas"),
            "window 0": ({"window": 0}, "window"),
            "window in words": ({"window": "long"}, "window"),
        },
    ),
    "optimal_window": (
        lambda **o: theory.optimal_window(**{"num_replicas": 4, "target_swap_rate": 0.4} | o),
        {
            "one replica": ({"num_replicas": 1}, "num_replicas"),
            "rate 0": ({"target_swap_rate": 0}, "target_swap_rate"),
            "rate in words": ({"target_swap_rate": "often"}, "target_swap_rate"),
            "rate not given": ({"target_swap_rate": None}, "target_swap_rate"),
            "rate by pair": ({"target_swap_rate": (0.4, 0.4)}, "target_swap_rate"),
            "rate nan": ({"target_swap_rate": NAN}, "target_swap_rate"),
        },
    ),
    "plan": (
        plan,
        {
            "replicas in words": ({"num_replicas": "many"}, "num_replicas"),
            "noise alone": ({"energy_noise_std": 1.0}, "temperatures"),
            "temperatures alone": ({"temperatures": (1.0, 2.0)}, "energy_noise_std"),
            "temperatures decrease": (
                {"energy_noise_std": 1.0, "temperatures": (2.0, 1.0)},
                "temperatures",
            ),
            "temperatures in words": (
                {"energy_noise_std": 1.0, "temperatures": "cold"},
                "temperatures",
            ),
            "noise negative": (
                {"energy_noise_std": -1.0, "temperatures": (1, 2)},
                "energy_noise_std",
            ),
            "noise in words": (
                {"energy_noise_std": "a", "temperatures": (1, 2)},
                "energy_noise_std",
            ),
            "params in words": ({"num_params": "many"}, "num_params"),
        },
    ),
}
CROSSED = [
    (
        "windowed_deo",
        lambda **o: rx.schedule.windowed_deo(**{"window": 2} | o),
        ("window",),
        NOT_WHOLE,
    ),
    ("windowed_deo", lambda **o: rx.schedule.windowed_deo(2, **o), ("swaps",), NOT_NAMES),
    ("bias_corrected", rx.swap.bias_corrected, ("energy_noise_std",), NOT_NUMBERS),
    ("bias_corrected", rx.swap.bias_corrected, ("estimate_every", "estimate_draws"), NOT_WHOLE),
    ("window_corrected", window_corrected, ("window_correction",), NOT_NUMBERS),
    ("momentum", rx.kernels.momentum, ("decay", "weight_decay"), NUMBERS_BELOW_0),
    ("sgld", rx.kernels.sgld, ("weight_decay",), NUMBERS_BELOW_0),
    ("sghmc", rx.kernels.sghmc, ("friction",), NUMBERS_BELOW_0),
    ("preconditioned", rx.kernels.preconditioned, ("decay", "eps"), NUMBERS_BELOW_0),
    ("preconditioned", rx.kernels.preconditioned, ("freeze_after",), NOT_WHOLE),
    ("hmc", rx.kernels.hmc, ("num_leapfrog",), NOT_WHOLE),
    ("mala", rx.kernels.mala, ("target_acceptance",), NUMBERS_BELOW_0),
    ("cyclical", cyclical, ("cycle_length",), NOT_WHOLE),
    ("cyclical", cyclical, ("exploitation",), NUMBERS_BELOW_0),
    ("annealed", annealed, ("num_steps",), NOT_WHOLE),
    ("annealed", annealed, ("temperature",), NUMBERS_BELOW_0),
    ("stepwise", stepwise, ("factor",), NUMBERS_BELOW_0),
    ("Gain", rx.Gain, ("scale", "offset", "power", "cap"), NOT_NUMBERS),
    ("modes25", rx.targets.modes25, ("noise_std",), NUMBERS_BELOW_0),
    ("gaussian", rx.targets.gaussian, ("std",), NUMBERS_BELOW_0),
]
MEANT = [
    Meant(
        "rule: noise as an array",
        lambda: rx.swap.bias_corrected(jnp.array([1.0, 2.0])),
        "one number for each pair",
        lambda rule: not rule.estimates_noise,
    ),
    Meant(
        "kernel: momentum of 0",
        lambda: rx.kernels.momentum(0),
        "plain SGD",
        lambda kernel: kernel.traits.spec["decay"] == 0,
    ),
    Meant(
        "plan: no noise",
        lambda: plan(energy_noise_std=0.0, temperatures=(1, 2)),
        "four replicas are enough",
        lambda answer: answer["num_replicas_worth_having"]["corrected"]["num_replicas"] == 4,
    ),
    Meant(
        "schedule: a window of NumPy",
        lambda: rx.schedule.windowed_deo(np.int64(3)),
        "a whole number",
        lambda schedule: schedule.window == 3,
    ),
]
ROWS = [
    *[row for room, call, names, values in CROSSED for row in crossed(room, call, names, values)],
    *[row for room, (call, rows) in LISTED.items() for row in listed(room, call, rows)],
    Refused("Thing: repr", lambda: rx.kernels.momentum(Thing()), ("decay",)),  # type: ignore
    *MEANT,
]
