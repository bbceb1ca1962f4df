"""The crossing: processor and wall time to 1,000 effective draws against the number of rows.

    python benchmarks/rows.py --out docs/results         # runs what is missing there, and the page
    python benchmarks/rows.py --rows 1e5 1e6 --json found.json

Each cell runs in a process of its own, one after another: compiling, search and tuning count, and
are shown apart. A cell that would take longer than the budget ends there, and says so.

- `replicax` is one call, `rx.sample(posterior, start)`, from N(0, 2^2), without a number given.
- `NUTS` is NumPyro's on all rows: dense metric, 300 steps of warm-up, 300 draws.
- `estimated` is the same with `method=rx.sweeps(exact=False)`.
- `withheld` is the same with the deepest minimum left out of the first mixture.
- `HMCECS` is NumPyro's, on 1,000 rows in 100 blocks, with a Taylor proxy at the minimum.
- `SGLD` and `SGHMC` are BlackJAX's, with control variates at the minimum and 1,000 rows a step, in
  four chains; steps are .1 / curvature, and .05 / its root (Euler), in the steepest direction.
  These three find the minimum as Laplace's does, which is counted, and end after `SPENT` seconds.
- `Laplace` is what one does by hand: L-BFGS from N(0, 2^2), the Hessian there, and importance
  weights of draws from the Gaussian: right where there is one mode, and nearly normal.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

KINDS = ("logistic-10", "logistic-50", "logistic-200", "mixture")
METHODS = ("replicax", "estimated", "NUTS", "Laplace", "withheld", "HMCECS", "SGLD", "SGHMC")
# Those that are run on some posteriors alone.
ONLY = {"withheld": ("mixture",), **dict.fromkeys(("HMCECS", "SGLD", "SGHMC"), ("logistic-10",))}
SPENT = 12.0  # processor seconds of those that have no end of their own
BATCH = 1_000  # rows that they see at once
WANTED = 1_000  # effective draws
MASS = 0.73  # of one of two mirror modes
WARM_UP, DRAWS = 300, 300


def model_of(kind: str, num_rows: int) -> tuple[Any, Any, Any, int]:
    """Return log likelihood, log prior and rows of a posterior, and its dimension."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(7)
    if kind == "mixture":
        x = rng.normal(size=(num_rows, 3)).astype("f")
        x[:, 0] = 1
        slopes = np.array([0.6, -0.4, 0.5, -0.5, 0.7, 0.1])
        first = rng.random(num_rows) < 0.5
        y = np.where(first, x @ slopes[:3], x @ slopes[3:]) + 0.7 * rng.normal(size=num_rows)
        tilt = np.log(MASS / (1 - MASS)) / (slopes[0] - slopes[3])

        def of_mixture(p, rows):
            parts = [-0.5 * ((rows[1] - rows[0] @ q) / 0.7) ** 2 for q in (p[:3], p[3:])]
            return jnp.logaddexp(*parts) - jnp.log(2.0)

        prior = lambda p: -0.5 * jnp.sum(p**2) + tilt * p[0]  # noqa: E731
        return of_mixture, prior, (x, y.astype("f")), 6
    d = int(kind.split("-")[1])
    slopes = np.random.default_rng(1).normal(0, 0.6 if d < 100 else 0.2, d)
    x = (rng.normal(size=(num_rows, d)) + 0.5 * rng.normal(size=(num_rows, 1))).astype("f")
    x[:, 0] = 1
    y = (rng.random(num_rows) < 1 / (1 + np.exp(-x @ slopes))).astype("f")

    def of_logistic(p, rows):
        z = rows[0] @ p
        return rows[1] * z - jax.nn.softplus(z)

    return of_logistic, lambda p: -jnp.sum(p**2) / 12.5, (x, y), d


class Clock:
    """Processor and wall time since it was made."""

    def __init__(self) -> None:
        self.cpu, self.wall = time.process_time(), time.monotonic()

    def __call__(self) -> tuple[float, float]:
        return time.process_time() - self.cpu, time.monotonic() - self.wall


def described(
    draws: Any, size: float, clock: Clock, setup: tuple[float, float], ends: bool = True
) -> dict[str, Any]:
    """Return the numbers of a cell: time to so many effective draws, those beyond what it drew at
    the rate after setting up; of those without an end of their own, also those that were too
    many."""
    import numpy as np

    cpu, wall = clock()
    flat = np.asarray(draws).reshape(-1, np.shape(draws)[-1])
    more = max(WANTED / size - 1, 0 if ends else -1)
    return {
        "cpu": cpu + more * (cpu - setup[0]),
        "wall": wall + more * (wall - setup[1]),
        "setup_cpu": setup[0],
        "setup_wall": setup[1],
        "effective": size,
        "drawn_cpu": cpu,
        "mean": flat.mean(axis=0).tolist(),
        "sd": flat.std(axis=0).tolist(),
        "mass": float((flat[:, 0] > flat[:, 3]).mean()) if flat.shape[1] == 6 else None,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "load": os.getloadavg()[0],
    }


def run_estimated(kind: str, num_rows: int, budget: float) -> dict[str, Any]:
    import replicax as rx

    return run_replicax(kind, num_rows, budget, method=rx.sweeps(exact=False))


def run_replicax(kind: str, num_rows: int, budget: float, **more: Any) -> dict[str, Any]:
    import jax

    import replicax as rx

    likelihood, prior, rows, d = model_of(kind, num_rows)
    _ = rx.sample, rx.bayesian  # imported when they are first used
    clock = Clock()
    marks: list[tuple[float, float]] = []
    posterior = rx.sample(
        rx.bayesian(likelihood, prior, rows),
        lambda key: 2 * jax.random.normal(key, (d,)),
        callback=lambda progress: marks.append(clock()),
        **more,
    )
    spent = posterior.sweeps
    found = posterior.summary()["parameters"]
    size = min(row["effective_size"] for row in found.values())
    first = 0 if spent is None else spent["minima"] + spent["learning"] - 1
    setup = marks[first] if spent else marks[len(marks) // 3]
    return described(posterior.draws, size, clock, setup) | {
        "decided": posterior.options["decided"],
        "sweeps": spent,
        "problems": posterior.problems(),
    }


def run_nuts(kind: str, num_rows: int, budget: float) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpyro.infer

    from replicax import diagnostics

    likelihood, prior, rows, d = model_of(kind, num_rows)
    rows = jax.tree.map(jnp.asarray, rows)
    clock = Clock()
    potential = lambda p: -(jnp.sum(likelihood(p, rows)) + prior(p))  # noqa: E731
    gradient = jax.jit(jax.value_and_grad(potential))
    jax.block_until_ready(gradient(jnp.zeros(d)))
    begin = time.process_time()
    for _ in range(3):
        jax.block_until_ready(gradient(jnp.zeros(d)))
    each = (time.process_time() - begin) / 3
    expected = each * 8 * (WARM_UP + DRAWS)  # seven leapfrog steps and more while it warms up
    if expected > budget:
        return {"over": True, "expected_cpu": expected, "gradient": each}
    kernel = numpyro.infer.NUTS(potential_fn=potential, dense_mass=True)
    chain = numpyro.infer.MCMC(
        kernel, num_warmup=WARM_UP, num_samples=DRAWS, num_chains=1, progress_bar=False
    )
    chain.warmup(jax.random.key(0), init_params=2 * jax.random.normal(jax.random.key(1), (d,)))
    jax.block_until_ready(chain.last_state)
    setup = clock()
    chain.run(jax.random.key(2))
    draws = chain.get_samples()[None]
    size = min(diagnostics.bulk_size(draws[..., i]) for i in range(d))
    return described(draws, size, clock, setup)


def minimum(likelihood: Any, prior: Any, blocks: Any, d: int) -> tuple[Any, Any]:
    """Return the minimum of the energy of all rows by L-BFGS from N(0, 2^2), and its Hessian."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from scipy.optimize import minimize

    def total(p):
        one = lambda sum, part: (sum + jnp.sum(likelihood(p, part)), None)  # noqa: E731
        return -jax.lax.scan(one, jnp.zeros(()), blocks)[0] - prior(p)

    both = jax.jit(jax.value_and_grad(total))

    def energy(p):
        value, slope = both(jnp.asarray(p, jnp.float32))
        return float(value), np.asarray(slope, float)

    begin = np.random.default_rng(3).normal(0, 2, d)
    mode = minimize(energy, begin, jac=True, method="L-BFGS-B").x
    hessian = np.asarray(jax.jit(jax.hessian(total))(jnp.asarray(mode, jnp.float32)), float)
    for _ in range(2):
        mode = mode - np.linalg.solve(hessian, energy(mode)[1])
    return mode, (hessian + hessian.T) / 2


def in_blocks(rows: Any, num_rows: int) -> Any:
    import jax
    import jax.numpy as jnp

    block = min(num_rows, BATCH)
    return jax.tree.map(lambda x: jnp.asarray(x).reshape(-1, block, *x.shape[1:]), rows)


def run_laplace(kind: str, num_rows: int, budget: float) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    likelihood, prior, rows, d = model_of(kind, num_rows)
    blocks = in_blocks(rows, num_rows)
    clock = Clock()
    mode, hessian = minimum(likelihood, prior, blocks, d)
    root = np.linalg.cholesky(np.linalg.inv(hessian))
    setup = clock()

    @jax.jit
    def apart(points, centre):
        def one(sum, part):
            values = jax.vmap(lambda p: likelihood(p, part))(points)
            return sum + jnp.sum(values - likelihood(centre, part), axis=1), None

        return jax.lax.scan(one, jnp.zeros(len(points)), blocks)[0] + jax.vmap(prior)(points)

    rng, centre = np.random.default_rng(0), jnp.asarray(mode, jnp.float32)
    points, weights, size = [], [], 0.0
    while size < WANTED and clock()[0] < budget:
        normal = rng.standard_normal((128, d))
        some = (mode + normal @ root.T).astype("f")
        points.append(some)
        weights.append(np.asarray(apart(some, centre), float) + 0.5 * (normal**2).sum(axis=1))
        weight = np.exp(np.concatenate(weights) - np.max(weights))
        size = float(weight.sum() ** 2 / (weight**2).sum())
    chosen = rng.choice(len(weight), 20_000, p=weight / weight.sum())
    return described(np.concatenate(points)[chosen], size, clock, setup)


def run_hmcecs(kind: str, num_rows: int, budget: float) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import HMCECS, MCMC, NUTS

    from replicax import diagnostics

    likelihood, prior, (x, y), d = model_of(kind, num_rows)
    x, y = jnp.asarray(x), jnp.asarray(y)

    def model():
        slopes = numpyro.sample("p", dist.Normal(0, 2.5).expand([d]).to_event(1))
        with numpyro.plate("rows", num_rows, subsample_size=BATCH):
            some, outcome = numpyro.subsample(x, 1), numpyro.subsample(y, 0)
            numpyro.sample("y", dist.Bernoulli(logits=some @ slopes), obs=outcome)

    clock = Clock()
    mode, _ = minimum(likelihood, prior, in_blocks((x, y), num_rows), d)
    proxy = HMCECS.taylor_proxy({"p": jnp.asarray(mode, jnp.float32)})
    kernel = HMCECS(NUTS(model, dense_mass=True), num_blocks=100, proxy=proxy)
    chain = MCMC(kernel, num_warmup=WARM_UP, num_samples=500, num_chains=1, progress_bar=False)
    begin = {"p": jnp.asarray(mode, jnp.float32)}
    chain.warmup(jax.random.key(0), init_params=begin)
    jax.block_until_ready(jax.tree.leaves(chain.last_state.z))
    setup, draws = clock(), []
    while clock()[0] < SPENT or not draws:
        chain.run(jax.random.key(2) if not draws else chain.last_state.rng_key)
        draws.append(chain.get_samples()["p"])
        chain.post_warmup_state = chain.last_state
    together = jnp.concatenate(draws)[None]
    size = min(diagnostics.bulk_size(together[..., i]) for i in range(d))
    return described(together, size, clock, setup, ends=False)


def run_blackjax(kind: str, num_rows: int, budget: float, sghmc: bool = False) -> dict[str, Any]:
    import blackjax
    import jax
    import jax.numpy as jnp
    import numpy as np
    from blackjax.sgmcmc import gradients

    from replicax import diagnostics

    likelihood, prior, rows, d = model_of(kind, num_rows)
    blocks = in_blocks(rows, num_rows)
    clock = Clock()
    mode, hessian = minimum(likelihood, prior, blocks, d)
    largest = float(np.linalg.eigvalsh(hessian)[-1])
    data, centre = jax.tree.map(jnp.asarray, rows), jnp.asarray(mode, jnp.float32)
    of_one = lambda p, row: likelihood(p, jax.tree.map(lambda x: x[None], row))[0]  # noqa: E731
    plain = gradients.grad_estimator(prior, of_one, num_rows)
    gradient = gradients.control_variates(plain, centre, data)
    kernel = blackjax.sghmc(gradient, 10) if sghmc else blackjax.sgld(gradient)
    size = 0.05 / largest**0.5 if sghmc else 0.1 / largest
    every = 1 if sghmc else 10  # as many gradients for each draw that is kept

    @jax.jit
    def many(key, at):
        def one(at, key):
            row_key, move_key = jax.random.split(key)
            places = jax.random.randint(row_key, (BATCH,), 0, num_rows)
            return kernel.step(move_key, at, jax.tree.map(lambda x: x[places], data), size), None

        def kept(at, key):
            at, _ = jax.lax.scan(one, at, jax.random.split(key, every))
            return at, at

        return jax.lax.scan(kept, at, jax.random.split(key, 200))

    step = jax.jit(jax.vmap(many))
    at, key = jnp.tile(centre, (4, 1)), jax.random.key(0)
    at, _ = jax.block_until_ready(step(jax.random.split(key, 4), at))
    setup, draws = clock(), []
    while clock()[0] < SPENT or not draws:
        key, use = jax.random.split(key)
        at, some = step(jax.random.split(use, 4), at)
        draws.append(np.asarray(some))
    together = np.concatenate(draws, axis=1)
    effective = min(diagnostics.bulk_size(together[..., i]) for i in range(d))
    return described(together, effective, clock, setup, ends=False)


def run_sghmc(kind: str, num_rows: int, budget: float) -> dict[str, Any]:
    return run_blackjax(kind, num_rows, budget, sghmc=True)


def run_withheld(kind: str, num_rows: int, budget: float) -> dict[str, Any]:
    """Sweep with the deepest minimum left out of the first mixture."""
    import jax

    import replicax as rx
    from replicax.run import sweeps

    likelihood, prior, rows, d = model_of(kind, num_rows)
    clock = Clock()
    made = sweeps._sampler

    def withheld(*given: Any) -> Any:
        sampler, starts = made(*given)
        return sweeps.replace(sampler, withheld=0), starts

    sweeps._sampler = withheld
    posterior = rx.sample(
        rx.bayesian(likelihood, prior, rows),
        lambda key: 2 * jax.random.normal(key, (d,)),
        method="sweeps",
    )
    found = posterior.summary()["parameters"]
    size = min(row["effective_size"] for row in found.values())
    more = {"sweeps": posterior.sweeps, "problems": posterior.problems()}
    return described(posterior.draws, size, clock, (0.0, 0.0)) | more


RUNNERS = {
    "HMCECS": run_hmcecs,
    "SGLD": run_blackjax,
    "SGHMC": run_sghmc,
    "withheld": run_withheld,
    "replicax": run_replicax,
    "estimated": run_estimated,
    "NUTS": run_nuts,
    "Laplace": run_laplace,
}


def run_cell(method: str, kind: str, num_rows: int, budget: float) -> dict[str, Any]:
    """Run one cell in a process of its own, and end it at twice its budget."""
    command = [sys.executable, "-W", "ignore", __file__, "--cell", method, kind, str(num_rows)]
    try:
        done = subprocess.run(
            [*command, "--budget", str(budget)],
            capture_output=True,
            text=True,
            timeout=5 * budget + 60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"over": True}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"failed": done.stderr.strip().splitlines()[-1:]}
    return json.loads(lines[-1])


def main(argv: list[str] | None = None) -> None:
    """Run the cells that are missing, one after another, and write the page."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e3, 1e4, 1e5, 1e6])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument(
        "--budget",
        type=float,
        default=240.0,
        help="processor seconds of a cell",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cell", nargs=3, metavar=("METHOD", "KIND", "ROWS"))
    given = parser.parse_args(argv)
    if given.cell:
        method, kind, rows = given.cell
        print(json.dumps(RUNNERS[method](kind, int(float(rows)), given.budget)))
        return
    path = given.json or given.out / "rows.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for rows in given.rows:
        for kind in given.kinds:
            for method in given.methods:
                if kind not in ONLY.get(method, KINDS):
                    continue
                name = f"{method} {kind} {int(rows)}"
                if name not in found:
                    found[name] = run_cell(method, kind, int(rows), given.budget)
                    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
                    shown = {k: v for k, v in found[name].items() if k in ("cpu", "wall", "over")}
                    print(name, shown, found[name].get("failed", ""), flush=True)
    print(table(found))
    if given.out:
        draw(found, given.out / "rows-crossing.png")


def table(found: dict[str, Any]) -> str:
    """Return the cells as a table in Markdown."""
    lines = [
        "| rows | posterior | sampler | processor s | of it before the first draw | wall s | "
        "effective | sweeps | means (sd) | GB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(found, key=lambda name: (name.split()[1], int(name.split()[2]), name)):
        method, kind, rows = name.split()
        cell = found[name]
        start = f"| {int(rows):.0e} | {kind} | {method} "
        if "cpu" not in cell:
            why = "failed" if "failed" in cell else "over the budget"
            lines.append(start + f"| {why} | | | | | | |")
            continue
        sweeps = cell.get("sweeps")
        taken = (
            ""
            if not sweeps
            else "+".join(str(sweeps[kind]) for kind in ("minima", "learning", "kept"))
        )
        apart = _apart(found, name)
        lines.append(
            start + f"| {cell['cpu']:,.1f} | {cell['setup_cpu']:,.1f} | {cell['wall']:,.0f} | "
            f"{cell['effective']:,.0f} | {taken} | {apart} | {cell['peak_gb']:.1f} |"
        )
    return "\n".join(lines)


def _apart(found: dict[str, Any], name: str) -> str:
    """Return how far means are from those by Laplace's weights, or the mass of a mode."""
    import numpy as np

    cell, (_, kind, rows) = found[name], name.split()
    if cell.get("mass") is not None:
        return f"mass {cell['mass']:.3f}"
    other = found.get(f"Laplace {kind} {rows}", {})
    if "mean" not in other or name.startswith("Laplace"):
        return ""
    gap = np.abs(np.array(cell["mean"]) - other["mean"]) / other["sd"]
    return f"{gap.max():.2f}"


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw processor time to 1,000 effective draws against rows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kinds = [kind for kind in KINDS if any(f" {kind} " in name for name in found)]
    figure, axes = plt.subplots(1, len(kinds), figsize=(4 * len(kinds), 3.6), sharey=True)
    colours = {
        "replicax": "#1f5fa8",
        "estimated": "#5fa84f",
        "NUTS": "#c44536",
        "Laplace": "#7a7a7a",
    }
    for kind, axis in zip(kinds, [axes] if len(kinds) == 1 else axes):
        for method, colour in colours.items():
            cells = {
                int(name.split()[2]): cell["cpu"]
                for name, cell in found.items()
                if name.split()[:2] == [method, kind] and "cpu" in cell
            }
            rows = sorted(cells)
            axis.loglog(rows, [cells[n] for n in rows], "-", color=colour, label=method)
            for n in rows:  # hollow: a mode is missing
                mass = found[f"{method} {kind} {n}"].get("mass")
                right = mass is None or abs(mass - MASS) < 0.1
                axis.plot(n, cells[n], "o", color=colour, markerfacecolor=colour if right else "w")
        axis.set_title(kind)
        axis.set_xlabel("rows")
    first = [axes][0] if len(kinds) == 1 else axes[0]
    first.set_ylabel("processor s to 1,000 effective draws")
    first.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
