"""What the adapters of other samplers share: `PeerRun`, dispersed starts, flat vectors."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from target import Target, normal

CHAINS = 4
MOST_DRAWS = 20_000  # kept of each of four chains
_INSTALL = {
    "numpyro": "pip install numpyro",
    "tensorflow_probability": "pip install tfp-nightly (release 0.25 does not import beside jax"
    " 0.10)",
    "blackjax": "pip install blackjax",
}


@dataclass(frozen=True)
class PeerRun:
    """Draws (chain, draw, ...), what the sampler's own diagnostics said, and processor seconds."""

    draws: Any
    warnings: tuple[str, ...]
    seconds: float  # without compiling
    compile_seconds: float
    iterations: int  # of one chain, added up over chains
    note: str = ""
    tuning_seconds: float = 0.0  # of these seconds, those before the first draw
    log_evidence: tuple[float, float] | None = None  # with its standard error


class Missing(ImportError):
    """A peer that is not installed."""


def missing(error: ImportError, package: str) -> Missing:
    return Missing(f"{error}: this needs {package}; {_INSTALL[package]}.")


def flat(target: Target) -> tuple[Callable[[Any], Any], int]:
    """Return the function from a vector back to parameters, and the length of the vector."""
    vector, unravel = ravel_pytree(target.start(jax.random.key(0)))
    return unravel, vector.size


def starts(target: Target, seed: int, count: int) -> Any:
    """Return dispersed parameters, stacked."""
    return jax.vmap(target.start)(jax.random.split(jax.random.key(seed), count))


def flat_starts(target: Target, seed: int, count: int) -> jax.Array:
    """Return the same as vectors  (count, size)."""
    return jax.vmap(lambda params: ravel_pytree(params)[0])(starts(target, seed, count))


class Base:
    """A Gaussian with the spread of the starts, from which tempering and nesting begin."""

    def __init__(self, target: Target) -> None:
        spread = flat_starts(target, 7, 2_000)
        self.centre, self.sd = spread.mean(0), spread.std(0) + 1e-3

    def log_density(self, x: jax.Array) -> jax.Array:
        """Return the log density, normalised."""
        return jnp.sum(normal(x, self.centre, self.sd))

    def draw(self, key: jax.Array, count: int) -> jax.Array:
        return self.centre + self.sd * jax.random.normal(key, (count, self.centre.size))


def evidence_of(runs: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the log evidences of runs, and its standard error from their spread."""
    return float(np.mean(runs)), float(np.std(runs, ddof=1) / np.sqrt(len(runs)))


def unflatten(unravel: Callable, draws: np.ndarray) -> Any:
    """From (chain, draw, size) to the tree of the parameters."""
    return jax.tree.map(np.asarray, jax.vmap(jax.vmap(unravel))(jnp.asarray(draws)))


def thinned(draws: np.ndarray, most: int = MOST_DRAWS) -> np.ndarray:
    """Return at most so many draws of each chain, evenly spaced  (chain, draw, ...)."""
    return draws[:, :: -(-draws.shape[1] // most)]


def compiled(function: Callable, *given: Any) -> tuple[Callable, float]:
    """Compile for the given arguments; return the program and the processor seconds it took."""
    began = time.process_time()
    program = jax.jit(function).lower(*given).compile()
    return program, time.process_time() - began


def rounded(count: float, least: int, most: int) -> int:
    """Return a count of one digit, so that other seeds find their program compiled."""
    return int(float(f"{np.clip(count, least, most):.0e}"))


def said(rhat: float, diverging: int = 0) -> tuple[str, ...]:
    """Return what the diagnostics of a sampler say to its user."""
    lines = () if rhat <= 1.01 else (f"R-hat is {rhat:.2f}",)
    return lines + ((f"{diverging} transitions diverge",) if diverging else ())
