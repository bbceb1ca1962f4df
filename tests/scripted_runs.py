"""Runs of the oracle whose energies follow a script, or whose target is tame."""

from typing import Any

import numpy as np
from reference import Noise, Record, run


def scripted(script: Any, drawn: dict[str, Any] | None = None, **settings: Any) -> Record:
    """Particles that stand still while their energies follow a script: (step, particle)."""
    script = np.array(script, float)
    num_replicas = script.shape[1]
    noise = Noise(np.zeros((*script.shape, 1)), energy=script)
    defaults = {
        "params": np.arange(num_replicas, dtype=float)[:, None],
        "noise": noise._replace(**(drawn or {})),
        "gradient": lambda params, noise: np.zeros(1),
        "energy": lambda params, noise: noise,
        "learning_rate": np.ones(num_replicas),
        "temperature": np.zeros(num_replicas),
    }
    return run(**(defaults | settings))


def bowl(num_steps: int = 200, num_replicas: int = 4, **settings: Any) -> Record:
    """A tame target, U = |theta|^2 / 2 in two dimensions, gradients and energies with noise."""
    rng = np.random.default_rng(0)
    pairs = [(i, j) for j in range(num_replicas) for i in range(j)]
    noise = Noise(
        move=rng.standard_normal((num_steps, num_replicas, 2)),
        gradient=rng.standard_normal((num_steps, num_replicas, 2)),
        energy=rng.standard_normal((num_steps, num_replicas, 2)),
        log_uniform=np.log(rng.uniform(size=(num_steps, num_replicas - 1))),
        odd=rng.uniform(size=num_steps) < 0.5,
        order=np.array([rng.permutation(pairs) for _ in range(num_steps)]),
        attempt_log_uniform=np.log(rng.uniform(size=(num_steps, len(pairs)))),
        attempt_energy=rng.standard_normal((num_steps, len(pairs), 2, 2)),
    )
    defaults = {
        "params": rng.standard_normal((num_replicas, 2)),
        "noise": noise,
        "gradient": lambda params, noise: params + 0.1 * noise,
        "energy": lambda params, noise: 0.5 * params @ params + 0.1 * noise[0],
        "learning_rate": np.geomspace(0.05, 0.2, num_replicas),
        "temperature": np.geomspace(1.0, 3.0, num_replicas),
    }
    return run(**(defaults | settings))
