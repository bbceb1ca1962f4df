"""Planets in the radial velocities of stars: the default call beside dynesty and NUTS.

    python benchmarks/planets.py run --out docs/results --jobs 2     # what is missing, and the page
    python benchmarks/planets.py page --out docs/results             # the page alone

A cell is a star, a number of planets, a sampler and a seed. Each runs in a process of its own, with
one thread, and all samplers have the likelihood of `examples/planets.py`. Its time is processor
time, with compiling. Cells in `planets.json` are not run again, but for those with an error. The
velocities are those of the package radvel, whose folder `radvel_example_data` must be on the path.
"""

import argparse
import json
import os
import runpy
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

STARS = ("simulated", "HD164922", "TOI141")
PERIODS = {"simulated": (23.7, 310.0), "HD164922": (75.8, 1201.0), "TOI141": (1.008, 4.785)}
SAMPLERS = ("replicax", "dynesty", "NUTS")
SEEDS, MOST_PLANETS = (0, 1, 2), 2
LONGEST = 480.0  # seconds of a run of ours, which then says what it is short of
WARM_UP, DRAWS, CHAINS, DEEPEST = 500, 500, 4, 8  # of NUTS; the last is that of its trees
LIVE_POINTS = 500  # of dynesty
STARTS, TRIED, PROPOSED = 12, 100_000, 200_000  # of importance sampling
QUANTILES = (0.05, 0.5, 0.95)
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}


def cells(stars: Any = STARS, samplers: Any = SAMPLERS, seeds: Any = SEEDS) -> list[list[Any]]:
    """Return all cells (star, planets, sampler, seed), those that take long first."""
    found = [
        [star, planets, sampler, seed]
        for planets in range(MOST_PLANETS, -1, -1)
        for sampler in samplers
        for star in stars[::-1]
        for seed in seeds
        if planets or sampler != "NUTS"
    ]
    return found


def posterior_of(star: str, planets: int) -> Any:
    return runpy.run_path(str(ROOT / "examples" / "planets.py"))["posterior_of"](star, planets)


def flat_functions(posterior: Any) -> tuple[Any, Any, int]:
    """Return log likelihood and periods of flattened standard normal numbers, and how many."""
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    flat, unravel = ravel_pytree(posterior.start(jax.random.key(0)))
    rows = posterior.batches.data

    def log_likelihood(point: Any) -> Any:
        return -posterior.target.energy(unravel(point), rows, None)

    def periods(point: Any) -> Any:
        return jnp.sort(
            jnp.atleast_1d(posterior.constrain(unravel(point)).get("period", jnp.zeros(0)))
        )

    return log_likelihood, periods, flat.size


def run_replicax(star: str, planets: int, seed: int) -> dict[str, Any]:
    """The default call, and a limit."""
    import numpy as np

    import replicax as rx

    run = rx.sample(posterior_of(star, planets), seed=seed, max_seconds=LONGEST, progress=False)
    estimates = {name: one.values.tolist() for name, one in run._evidences.items()}
    errors = {name: one.combined().standard_error for name, one in run._evidences.items()}
    value, error = run.log_evidence()
    rhat = max(row["rhat"] for row in run.summary()["parameters"].values())
    size = min(row["effective_size"] for row in run.summary()["parameters"].values())
    periods = (
        np.quantile(run.draws["period"], QUANTILES, axis=1) if planets else np.zeros((3, 4, 0))
    )
    return {
        "log_evidence": value,
        "error": error,
        "estimates": estimates,
        "errors": errors,
        "periods": np.moveaxis(periods, 0, -1).tolist(),  # (chain, planet, quantile)
        "steps": run.num_steps,
        "replicas": run.num_replicas,
        "hottest": float(np.nan_to_num(run.temperatures[:, -1].min(), posinf=-1.0)),
        "round_trips": run.round_trips.tolist(),
        "rhat": rhat,
        "effective": size,
        "ended": run.result.sentence,
        "problems": run.problems(),
    }


def run_dynesty(star: str, planets: int, seed: int) -> dict[str, Any]:
    """Static nested sampling, with random walks."""
    import dynesty
    import jax
    import numpy as np
    from scipy.special import ndtri

    log_likelihood, periods, d = flat_functions(posterior_of(star, planets))
    compiled = jax.jit(log_likelihood)
    sampler = dynesty.NestedSampler(
        lambda z: float(compiled(z.astype(np.float32))),
        ndtri,
        d,
        nlive=LIVE_POINTS,
        sample="rwalk",
        rstate=np.random.default_rng(seed),
    )
    sampler.run_nested(print_progress=False, dlogz=0.1)
    found = sampler.results
    draws = found.samples_equal(rstate=np.random.default_rng(seed)).astype(np.float32)
    shown = np.asarray(jax.jit(jax.vmap(periods))(draws))
    return {
        "log_evidence": float(found.logz[-1]),
        "error": float(found.logzerr[-1]),
        "periods": [np.quantile(shown, QUANTILES, axis=0).T.tolist()],
        "evaluations": int(np.sum(found.ncall)),
    }


def run_nuts(star: str, planets: int, seed: int) -> dict[str, Any]:
    """NumPyro's NUTS with a dense metric, its chains from draws of the prior."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from numpyro.diagnostics import split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    log_likelihood, periods, d = flat_functions(posterior_of(star, planets))
    potential = lambda z: jnp.sum(z**2) / 2 - log_likelihood(z)  # noqa: E731
    kernel = NUTS(potential_fn=potential, dense_mass=True, max_tree_depth=DEEPEST)
    mcmc = MCMC(kernel, num_warmup=WARM_UP, num_samples=DRAWS, num_chains=CHAINS,
                chain_method="sequential", progress_bar=False)  # fmt: skip
    starts = jax.random.normal(jax.random.key(seed + 100), (CHAINS, d))
    mcmc.run(jax.random.key(seed), init_params=starts)
    shown = np.asarray(jax.jit(jax.vmap(jax.vmap(periods)))(mcmc.get_samples(group_by_chain=True)))
    return {
        "periods": np.moveaxis(np.quantile(shown, QUANTILES, axis=1), 0, -1).tolist(),
        "rhat": float(np.max(split_gelman_rubin(shown))),
    }


def run_importance(star: str, planets: int, seed: int) -> dict[str, Any]:
    """Importance sampling around the deepest minimum, which knows nothing of other modes: the
    log evidence of one labelling, times their number. Not a sampler that one would use: a check."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from numpyro.infer import MCMC, NUTS
    from scipy.optimize import minimize
    from scipy.special import gammaln, logsumexp

    log_likelihood, periods, d = flat_functions(posterior_of(star, planets))
    potential = lambda z: jnp.sum(z**2) / 2 - log_likelihood(z)  # noqa: E731
    several, slope = jax.jit(jax.vmap(potential)), jax.jit(jax.value_and_grad(potential))

    def both(z: Any) -> Any:
        return [np.asarray(x, float) for x in slope(jnp.asarray(z, jnp.float32))]

    ends = []
    for key in jax.random.split(jax.random.key(seed), STARTS):
        tried = jax.random.normal(key, (TRIED, d))
        best = np.asarray(tried[jnp.argmin(several(tried))], float)
        ends.append(minimize(both, best, jac=True, method="L-BFGS-B", options={"maxiter": 2000}))
    lowest = min(ends, key=lambda end: end.fun).x
    kernel = NUTS(potential_fn=potential, dense_mass=True, max_tree_depth=DEEPEST)
    mcmc = MCMC(kernel, num_warmup=WARM_UP, num_samples=4 * DRAWS, progress_bar=False)
    mcmc.run(jax.random.key(seed), init_params=jnp.asarray(lowest, jnp.float32))
    draws = np.asarray(mcmc.get_samples(), float)
    mean, root = draws.mean(axis=0), np.linalg.cholesky(1.3 * np.cov(draws.T))
    rng, freedom = np.random.default_rng(seed), 6
    shrink = np.sqrt(rng.chisquare(freedom, PROPOSED) / freedom)
    points = mean + rng.normal(size=(PROPOSED, d)) / shrink[:, None] @ root.T
    square = np.sum(np.linalg.solve(root, (points - mean).T) ** 2, axis=0)
    log_q = gammaln((freedom + d) / 2) - gammaln(freedom / 2) - d / 2 * np.log(freedom * np.pi)
    log_q -= np.log(np.diag(root)).sum() + (freedom + d) / 2 * np.log1p(square / freedom)
    energy = np.asarray(several(jnp.asarray(points, jnp.float32)), float)
    weight = -np.where(np.isfinite(energy), energy, np.inf) - d / 2 * np.log(2 * np.pi) - log_q
    total = logsumexp(weight)
    effective = np.exp(2 * total - logsumexp(2 * weight))
    shown = np.asarray(jax.jit(jax.vmap(periods))(jnp.asarray(draws, jnp.float32)))
    return {
        "log_evidence": total - np.log(PROPOSED) + float(gammaln(planets + 1)),
        "error": float(1 / np.sqrt(effective)),
        "periods": [np.quantile(shown, QUANTILES, axis=0).T.tolist()],
        "effective": float(effective),
    }


RUN = {
    "replicax": run_replicax,
    "dynesty": run_dynesty,
    "NUTS": run_nuts,
    "importance": run_importance,
}


def run_cell(cell: list[Any]) -> dict[str, Any]:
    """Run a cell in this process."""
    star, planets, sampler, seed = cell
    try:
        entry = RUN[sampler](star, planets, seed)
    except Exception:  # a run that fails is a result, too
        entry = {"failed": traceback.format_exc()[-1500:]}
    return entry | {"cpu": time.process_time(), "load": os.getloadavg()[0]}


class Cells:
    """Cells by name, in a file that is whole after each of them."""

    def __init__(self, file: Path) -> None:
        self.file, self.lock = file, Lock()
        self.found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def run(self, cell: list[Any], budget: float) -> None:
        """Run a cell in a process of its own, unless it is there."""
        name = " ".join(map(str, cell))
        if "cpu" in self.found.get(name, {}) and "failed" not in self.found[name]:
            return
        command = [sys.executable, __file__, "cell", json.dumps(cell)]
        try:
            done = subprocess.run(command, env=os.environ | ONE_THREAD, timeout=budget,
                                  capture_output=True, text=True, check=True)  # fmt: skip
            entry = json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            entry = {"over": budget}
        except subprocess.CalledProcessError as error:
            entry = {"failed": error.stderr[-1500:]}
        with self.lock:
            self.found[name] = entry
            partial = self.file.with_suffix(".part")
            partial.write_text(json.dumps(self.found, indent=1, sort_keys=True) + "\n")
            partial.replace(self.file)
            print(f"{name}: {_said(entry)}", flush=True)


def _said(entry: dict[str, Any]) -> str:
    if "cpu" not in entry or "failed" in entry:
        return str(entry)[-300:]
    return (
        f"{entry['cpu']:.0f} s, log evidence {entry.get('log_evidence')} {entry.get('ended', '')}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("run", "page", "cell"))
    parser.add_argument("cell", nargs="?", help="of `cell`: a list as JSON")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--budget", type=float, default=540, help="seconds of wall time of a cell")
    for name, values in (("stars", STARS), ("samplers", SAMPLERS)):
        parser.add_argument(f"--{name}", nargs="+", choices=values, default=values)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    given = parser.parse_args()
    if given.what == "cell":
        print(json.dumps(run_cell(json.loads(given.cell))))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    kept = Cells(given.out / "planets.json")
    if given.what == "run":
        chosen = cells(tuple(given.stars), given.samplers, given.seeds)
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(lambda cell: kept.run(cell, given.budget), chosen))
    from planets_page import write_page

    write_page(kept.found, given.out / "planets.md")


if __name__ == "__main__":
    main()
