"""Run folders of format 5, written by version 0.2.0 and stopped before their end: how they were
made, and how they continue."""

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tiny_networks import EXCHANGING, NETWORK, tiny_problem

import replicax as rx

HERE = Path(__file__).parent
PLAIN = rx.nn.mlp(36, 3, hidden=(4,))  # without batch statistics
ROWS = np.random.default_rng(0).normal(1.0, 1.0, 40).astype(np.float32)


def wells(x):
    return jnp.sum((x["at"] ** 2 - 1) ** 2) * 2 + 0.3 * jnp.sum(x["at"])


def bowl(x):
    """A Gaussian: nothing is chaotic, and the last bits of adjusted moves stay the last ones."""
    return jnp.sum((x["at"] - 1) ** 2 * jnp.array([0.5, 2.0]))


def noisy_wells(x, rows):
    return wells(x) + 0.1 * jnp.mean((x["at"][0] - rows) ** 2)


def log_likelihood(params, rows):
    near, far = params["at"]
    return jnp.logaddexp(-0.5 * (rows - near) ** 2, -0.5 * (rows - far) ** 2)


def log_prior(params):
    return -jnp.sum(params["at"] ** 2) / 18


def start(key):
    return {"at": 1.5 * jax.random.normal(key, (2,))}


class Blocks:
    """A source: the same five blocks of eight rows in every epoch."""

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(ROWS.reshape(5, 8))


class Stored(NamedTuple):
    """One folder: the call that made it (all of it with `callback=None`), and how it resumes."""

    make: Callable[..., Any]
    target: Callable[[], Any]
    again: dict[str, Any]


def sample(
    target: Callable[[], Any], again: dict[str, Any] | None = None, **options: Any
) -> Stored:
    again = again or {}
    chosen = dict(num_steps=160, num_replicas=3, num_chains=2, seed=5, progress=False) | options
    return Stored(
        lambda **more: rx.sample(target(), start, **chosen, **again, **more), target, again
    )


def train(network: Any = NETWORK, **options: Any) -> Stored:
    chosen = dict(epochs=4, num_replicas=3, seed=5, progress=False) | options
    problem = lambda: tiny_problem(network)  # noqa: E731
    make = lambda **more: rx.train(problem(), network.init, **chosen, **more)  # noqa: E731
    return Stored(make, problem, {})


FOLDERS = {
    "hmc": sample(lambda: bowl),
    "deo-star": sample(
        lambda: noisy_wells, dict(batches=ROWS, batch_size=8), learning_rate=(0.003, 0.03)
    ),
    "training": train(**EXCHANGING | dict(seed=5, keep_networks=True)),
    "sghmc-pt": train(PLAIN, method="sghmc-pt", burn_in=2, swap_every=2, learning_rate=0.01),
    "cyc-swag": train(method="cyc-swag", cycle_epochs=6, learning_rate=0.05),
}

# Options that folders were made with, and their targets.
GONE = {
    "average-rungs": ("average_rungs=2", tiny_problem),
    "langevin": (
        "kernel='langevin'",
        lambda: rx.bayesian(log_likelihood, log_prior, ROWS, batch_size=8),
    ),
    "source": (
        "kernel='langevin'",
        lambda: rx.bayesian(log_likelihood, log_prior, Blocks(), batch_size=8, num_rows=40),
    ),
}


def unpack(name: str, into: Path) -> Path:
    """Unpack a stored folder and return its path."""
    with tarfile.open(HERE / f"folders/{name}.tar.xz") as archive:
        archive.extractall(into, filter="data")
    return into / name


def stop_early(progress: rx.callbacks.Progress) -> str | None:
    return "stop" if progress.step >= progress.num_steps // 3 else None


def contents(posterior: Any) -> dict[str, np.ndarray]:
    """What is compared of a finished run: index paths, the last draws, the average of networks."""
    held = {"rung_of": np.asarray(posterior.rung_of, np.int8)}
    held["energy"] = np.asarray(posterior.energies)
    if hasattr(posterior, "epochs"):
        held |= {f"epochs.{key}": np.asarray(x) for key, x in posterior.epochs.items()}
    else:
        held["draws"] = np.asarray(posterior.draws["at"])
    return held
