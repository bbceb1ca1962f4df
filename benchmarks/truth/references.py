"""Write references.json: moments of the judged functions and masses of the modes.

    python benchmarks/truth/references.py [TARGET ...]

Independent draws where the law allows them (closed form, conjugacy, a grid). Otherwise importance
sampling in the mode that made the data, all modes being mirror images of it: proposals are Student
draws around its highest point. Where that has too long tails, a long run of NumPyro's NUTS from
there, four chains with a dense metric.
"""

import json
import sys
import time
from math import lgamma
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from target import Target
from targets import ALL, FILE

_NUM_EXACT, _NUM_PROPOSED = 200_000, 100_000
_FREEDOM = 8  # degrees of the Student law
_FEWEST_ROWS = 5_000  # from which there are fewer proposals
_FEWER_PROPOSED = 20_000
_WARMUP, _TRANSITIONS = 1_000, 4_000  # of NUTS, of each of four chains
_FEWEST = 0.05  # of the proposals must count


def find_reference(target: Target) -> dict[str, Any]:
    """Return moments, masses, their standard errors, the log evidence where it is known, and the
    method."""
    evidence = None if target.log_evidence is None else target.log_evidence()
    if target.exact is not None:
        draws, size = target.exact(np.random.default_rng(1), _NUM_EXACT), float(_NUM_EXACT)
        method = f"{_NUM_EXACT:,} independent draws"
    elif target.by_nuts:
        draws, size = nuts_draws(target)
        method = f"NUTS, {size:,.0f} of {4 * _TRANSITIONS:,} effective"
    else:
        rows = jax.tree.leaves(target.data)[0].shape[0]
        proposed = _NUM_PROPOSED if rows < _FEWEST_ROWS else _FEWER_PROPOSED
        draws, size, evidence = importance_draws(target, proposed)
        method = f"importance sampling in one mode, {size:,.0f} of {proposed:,} effective"
        if size < _FEWEST * proposed:
            raise RuntimeError(f"{target.name}: {size:.0f} effective draws are too few.")
    values, modes = target.evaluate(draws)
    functions = {
        name: {
            "mean": float(value.mean()),
            "sd": float(value.std()),
            "error": size**-0.5,
        }
        for name, value in values.items()
    }
    found: dict[str, Any] = {"method": method, "functions": functions}
    if evidence is not None:
        found["log_evidence"] = evidence
    if target.masses is not None:
        found["masses"] = list(target.masses)
    elif modes is not None:
        found["masses"] = [float(n) for n in np.bincount(modes) / modes.size]
    return found


def importance_draws(target: Target, count: int) -> tuple[Any, float, float]:
    """Return draws resampled from proposals around one mode, the effective number of these, and the
    log evidence of all modes."""
    point, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float), target.truth))
    potential = jax.jit(lambda flat: target.potential(unravel(flat)))
    gradient, hessian = jax.jit(jax.grad(potential)), jax.jit(jax.hessian(potential))
    for _ in range(100):  # Newton's steps, shorter where the potential would rise
        step = jnp.linalg.solve(hessian(point) + 1e-6 * jnp.eye(point.size), gradient(point))
        lengths = 0.5 ** jnp.arange(12.0)
        heights = jnp.stack([potential(point - length * step) for length in lengths])
        point = point - lengths[jnp.nanargmin(heights)] * step
    root = np.linalg.cholesky(np.linalg.inv(np.asarray(hessian(point))))
    rng = np.random.default_rng(1)
    normal = rng.standard_normal((count, point.size))
    radius = np.sqrt(rng.chisquare(_FREEDOM, (count, 1)) / _FREEDOM)
    proposed = jnp.asarray(np.asarray(point) + (normal / radius) @ root.T)
    square = ((normal / radius) ** 2).sum(1)
    log_proposal = -(_FREEDOM + point.size) / 2 * np.log1p(square / _FREEDOM)
    log_proposal += _log_student(point.size) - np.log(np.diag(root)).sum()
    log_weight = -np.asarray(jax.lax.map(potential, proposed, batch_size=200)) - log_proposal
    weight = np.exp(log_weight - np.nanmax(log_weight))
    num_modes = 1 if target.masses is None else len(target.masses)
    evidence = np.nanmax(log_weight) + np.log(np.nansum(weight) / count * num_modes)
    weight = np.nan_to_num(weight / np.nansum(weight))
    places = (np.arange(count) + rng.random()) / count
    chosen = np.minimum(np.searchsorted(np.cumsum(weight), places), count - 1)
    return jax.vmap(unravel)(proposed[chosen]), float(1 / np.sum(weight**2)), float(evidence)


def _log_student(size: int) -> float:
    """Return the log density of a Student law of unit scale at its centre."""
    whole = lgamma((_FREEDOM + size) / 2) - lgamma(_FREEDOM / 2)
    return whole - size / 2 * np.log(_FREEDOM * np.pi)


def nuts_draws(target: Target) -> tuple[Any, float]:
    """Return draws of NUTS (draw, ...), and their smallest effective number."""
    from judge import effective_size
    from numpyro.infer import MCMC, NUTS

    kernel = NUTS(potential_fn=target.potential, dense_mass=True, target_accept_prob=0.95)
    run = MCMC(
        kernel,
        num_warmup=_WARMUP,
        num_samples=_TRANSITIONS,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    near = jax.random.normal(jax.random.key(2), (4, target.truth.size))
    run.run(jax.random.key(1), init_params=target.truth + 0.05 * near)
    draws = np.asarray(run.get_samples(group_by_chain=True))
    values, _ = target.evaluate(draws)
    size = min(effective_size(np.asarray(value, float)) for value in values.values())
    return draws.reshape(-1, target.truth.size), float(size)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    stored = json.loads(FILE.read_text())["references"] if FILE.exists() else {}
    for name in sys.argv[1:] or ALL:
        if name.endswith("-batch"):  # the same posterior as without
            continue
        began = time.monotonic()
        stored[name] = find_reference(ALL[name])
        print(f"{name}: {stored[name]['method']}, {time.monotonic() - began:.0f} s", flush=True)
        content = {
            "command": "python benchmarks/truth/references.py",
            "note": "error: Monte Carlo standard error of the mean, in sd",
            "references": {name: stored[name] for name in ALL if name in stored},
        }
        FILE.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
