"""Earlier formats of run.json: 5, which version 0.2 wrote, as 6; and 6 as 7."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from replicax.run.methods import METHODS, Method
from replicax.run.storage.files import Damaged

_OPEN: dict[str, Any] = {entry.name: entry.default for entry in fields(Method)}
_KERNELS = {"sghmc-pt": {"kernel": "sghmc"}, "sgld": {"kernel": "sgld"}}  # others now
# What the methods of networks of 0.2 left open; the rest is as it still is.
_NETWORKS: dict[str, Any] = _OPEN | {
    "learning_rate": 0.005,
    "temperature": 0.0,
    "kernel": "momentum",
    "schedule": "none",
    "rule": "deterministic",
    "swap_every": 1,
}
_RATES: dict[str, Any] = {"deo-star": [0.005, 0.02], "deo": [0.005, 0.02], "cyc-sghmc": 0.1,
                          "cyc-swag": 0.1}  # fmt: skip
# Options of 0.2 that later versions lack, each with the value that changed nothing.
_GONE: dict[str, Any] = {"average_rungs": 1, "settle_epochs": 0.0, "track_best": None}
_ADDED: dict[str, Any] = {"exact": True}  # options of the method that early runs of 0.3 lack
_LANGEVIN = "langevin"  # a kernel that is gone
_STAGES = ("reference_steps", "tuning_steps")  # of a lambda_W that the run found
_COUNTED = re.compile(r"(.+) of (\d+) rows, (\d+) a batch")
# What became options of the run, and of the method.
_RUN = ("burn_in", "seed", "checkpoint_every", "keep_checkpoints")
_OF_SAMPLING = ("num_steps", "num_chains", "thin", "on_nonfinite", "draw_rungs", "keep_draws")
_OF_TRAINING = ("epochs", "num_replicas", "keep_networks")
_METHOD = ("learning_rate", "temperature", "kernel", "schedule", "rule", "swap_every", "window")
_METHOD += ("target_swap_rate", "gain", "buffer", "buffer_gain", "adapt", "on_swap")
_OF_NETWORKS = ("momentum", "rate_schedule", "warmup_epochs", "cycle_epochs", "clip_norm")


def upgraded(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a run.json of format 5 as format 6 has it."""
    content = dict(content)
    try:
        options, training = content.pop("options"), content.pop("training", None)
        unit, resolved = content.pop("unit", None), content["resolved"]
        if training is None:
            run, method = _sampling(options, resolved)
            gone = _gone(options)
        else:
            run, method = _training(options, training)
            gone = _gone(training) | ({"unit": unit} if unit == "total" else {})
            if method["rate_schedule"] == "arrival":
                gone["rate_schedule"] = "arrival"
        if not isinstance(options["swap_energy"], str):
            gone["swap_energy"] = options["swap_energy"]
        method["window"] = resolved["window"]
        held = ("num_steps", "num_chains", "burn_in", "thin", "keep_draws", "target_swap_rate")
        resolved = resolved | {name: options[name] for name in held}
        energy_at = resolved.pop("swap_energy")
        resolved["energy_at"] = "all_rows" if energy_at == "whole" else energy_at
        batches = _batches(content["batches"])
    except (LookupError, TypeError, AttributeError):
        raise Damaged(f"{path} is damaged: its entries are not those of a run.") from None
    content |= {"run": run, "method": method, "resolved": resolved}
    return content | {"batches": batches, "gone": gone}


def with_options_of_today(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a run.json with the options that came later, without the stages in
    which a run of 0.2 found lambda_W, and with a kernel that is gone by its name alone."""
    method = content.get("method")
    if not isinstance(method, dict):
        return content
    method, gone = _ADDED | method, content.get("gone", {})
    kernel, rule = method.get("kernel"), method.get("rule")
    if _LANGEVIN in (kernel, _part(kernel, "kernel", "name")):
        method, gone = method | {"kernel": _LANGEVIN}, gone | {"kernel": _LANGEVIN}
    corrected = _part(rule, "WindowCorrected")
    if isinstance(corrected, dict):
        kept = {name: value for name, value in corrected.items() if name not in _STAGES}
        if kept.get("window_correction") is None:
            kept["window_correction"] = 0.0
            gone = gone | {"window_correction": "auto"}
        method = method | {"rule": {"WindowCorrected": kept}}
    return content | {"method": method} | ({"gone": gone} if gone else {})


def _part(content: Any, *names: str) -> Any:
    """Return what is found below these names one after another, None if it is not there."""
    for name in names:
        content = content.get(name) if isinstance(content, dict) else None
    return content


def with_own_digest(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a run.json of format 6 as format 7 has it: its digest of the data, of
    some rows, is kept and compared as it was made."""
    stored = content.get("fingerprint")
    if not isinstance(stored, dict):
        return content
    return content | {"fingerprint": stored | {"all_rows": False}}


def _batches(text: str) -> dict[str, Any]:
    """Return the source of mini-batches, which format 5 describes in words.

    >>> _batches("arrays of 40 rows, 8 a batch")
    {'kind': 'arrays', 'num_rows': 40, 'batch_size': 8}
    """
    found = _COUNTED.fullmatch(text)
    if found is None:
        return {"kind": text}
    return {"kind": found[1], "num_rows": int(found[2]), "batch_size": int(found[3])}


def _gone(options: dict[str, Any]) -> dict[str, Any]:
    held = {name: options.get(name, usual) for name, usual in _GONE.items()}
    return {name: value for name, value in held.items() if value not in (_GONE[name], False)}


def _sampling(
    options: dict[str, Any], resolved: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    run = {name: options[name] for name in (*_RUN, *_OF_SAMPLING, "history_every")}
    run["num_replicas"] = resolved["num_replicas"]
    method = _OPEN | {name: options[name] for name in _METHOD}
    method |= {"jumps": 0, "redraws": 0, "draws_per_step": 1}
    tunes = options["learning_rate"] == "auto" or options["temperature"] == "auto"
    schedule = options["schedule"] if isinstance(options["schedule"], str) else "own schedule"
    method["name"] = "posterior" if tunes else schedule.replace("_", "-")
    method["energy_at"] = _energy_at(options["swap_energy"], options["energy_at"])
    return run, method


def _training(
    options: dict[str, Any], training: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    run = {name: training[name] for name in (*_RUN, *_OF_TRAINING)}
    run["keep_averaged"] = training.get("keep_averaged", 100)
    run |= {"hold_out": None, "early_stop": None}
    run["evaluate"] = training.get("evaluate")
    run["on_nonfinite"] = options["on_nonfinite"]
    chosen = training["method"]
    if isinstance(chosen, str):
        made = METHODS[chosen](**_KERNELS.get(chosen, {}))
        known = {name: x for name, x in vars(made).items() if x is not None}
        chosen = {"learning_rate": _RATES.get(chosen, 0.005)} | known
    method = _NETWORKS | chosen
    given = {name: training.get(name) for name in (*_METHOD, *_OF_NETWORKS)}
    method |= {name: value for name, value in given.items() if value is not None}
    method["adapt"] = training.get("adapt")
    method["energy_at"] = _energy_at(options["swap_energy"], options["energy_at"])
    return run, method


def _energy_at(swap_energy: Any, energy_at: str) -> str:
    """Return the one word for what were two options."""
    return "all_rows" if swap_energy == "full" else energy_at
