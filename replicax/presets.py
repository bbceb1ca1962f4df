"""Named settings for `rx.sample`, each with its evidence in `docs/results/preset.md`.

>>> import replicax as rx
>>> options = rx.presets.get("modes25-tempered")
>>> posterior = rx.sample(rx.targets.modes25(), rx.targets.modes25_start, num_steps=500, **options)
"""

from typing import Any

from replicax.errors import choose

_PAPER = {
    "num_replicas": 16,
    "learning_rate": (0.003, 0.6),
    "target_swap_rate": 0.4,
    "burn_in": 100,
    "thin": 10,
}
_PRESETS: dict[str, dict[str, Any]] = {
    # Section 5.1 of the paper: SGD above the cold rung, the deterministic rule, DEO*.
    "modes25": _PAPER,
    # Langevin noise on every rung and the bias-corrected rule leave no bias that the target swap
    # rate would have to balance; windows would introduce one.
    "modes25-tempered": {
        **_PAPER,
        "learning_rate": (0.003, 0.03),
        "temperature": (1.0, 10.0),
        "rule": "bias_corrected",
        "schedule": "deo",
    },
}
NAMES = tuple(_PRESETS)


def get(name: str) -> dict[str, Any]:
    """Return the keyword arguments for `rx.sample` of the preset `name`."""
    return dict(_PRESETS[choose("The name of a preset", name, NAMES)])
