"""Posteriors that no test knows, each hard for one reason, and one call of `rx.sample` on each.

    python benchmarks/truth/strangers.py [NAME ...] [--seed 0] [--json FILE]

All have independent draws: of mixtures by their labels, of the others on a grid or by conjugacy.
Starts are as wide as the posterior; nothing is given to `rx.sample`.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import fresh
import jax
import jax.numpy as jnp
import numpy as np
from kinds import start_of
from target import Target, normal

Draw = Callable[[np.random.Generator, int], np.ndarray]


def _bare(name: str, title: str, size: int, start: float, energy: Callable, draw: Draw, **more):
    more.setdefault("functions", lambda x: {f"x{i}": x[i] for i in range(min(size, 6))})
    return Target(
        name, title, start_of(size, start), bare=energy, exact=draw, num_steps=None, **more
    )


def normals(
    name: str, title: str, start: float, masses: Any, centres: Any, widths: Any, **more: Any
) -> Target:
    """Return a mixture of normals of masses (k,), centres (k, d) and widths (k,) or (k, d)."""
    masses, centres = np.asarray(masses, float), np.asarray(centres, float)
    masses = masses / masses.sum()
    widths = np.reshape(np.asarray(widths, float), (len(masses), -1)) + np.zeros(centres.shape)

    def energy(x):
        return -jax.nn.logsumexp(jnp.sum(normal(x, centres, widths), axis=1) + jnp.log(masses))

    def draw(rng, n):
        label = rng.choice(len(masses), size=n, p=masses)
        return centres[label] + widths[label] * rng.standard_normal((n, centres.shape[1]))

    def mode(x):
        return jnp.argmax(jnp.sum(normal(x, centres, widths), axis=1) + jnp.log(masses))

    return _bare(name, title, centres.shape[1], start, energy, draw, mode=mode, **more)


def two_widths() -> Target:
    rng = np.random.default_rng(3)
    return normals(
        "two-widths", "masses .6 and .4, widths 1 and .3, 10-d", 3.0,
        [0.6, 0.4], 2 * rng.standard_normal((2, 10)), [1.0, 0.3],
    )  # fmt: skip


def three_widths() -> Target:
    centres = 4 * np.random.default_rng(7).standard_normal((3, 20))
    title = "masses .5, .3, .2, widths 1, .7, .5, 20-d"
    return normals("three-widths", title, 4.0, [0.5, 0.3, 0.2], centres, [1.0, 0.7, 0.5])


def many_dimensions() -> Target:
    centres = 2 * np.random.default_rng(8).standard_normal((2, 120))
    title = "masses .6, .4, widths 1, .8, 120-d"
    return normals("many-dimensions", title, 2.0, [0.6, 0.4], centres, [1.0, 0.8])


def concentric() -> Target:
    title = "a spike of width .1 in a slab, half each, 10-d"
    return normals("concentric", title, 2.0, [0.5, 0.5], np.zeros((2, 10)), [1.0, 0.1])


def off_centre() -> Target:
    centres = np.stack([np.zeros(8), np.full(8, 0.5)])
    title = "a spike of width .05 off the centre of a slab, 8-d"
    return normals("off-centre", title, 2.0, [0.7, 0.3], centres, [1.0, 0.05])


def comb() -> Target:
    at = np.arange(12.0)[:, None] * np.array([1.0, -0.5, 0.3]) - 5
    masses = 1 + np.arange(12) % 4
    title = "a comb of 12 modes of width .05, 3-d"
    return normals("comb", title, 4.0, masses, at, np.full(12, 0.05))


def scaled_modes() -> Target:
    widths = np.array([[0.01, 1, 100, 1, 1], [0.03, 1, 30, 3, 0.3]])
    centres = np.array([[0.0, 0, 0, 0, 0], [0.2, 5, 100, 5, -5]])
    title = "two modes with scales .01 to 100, 5-d"
    return normals("scaled-modes", title, 10.0, [0.5, 0.5], centres, widths)


def ring() -> Target:
    radius, width, size = 5.0, 0.1, 5
    grid = np.linspace(radius - 1, radius + 1, 20_001)
    density = grid ** (size - 1) * np.exp(-0.5 * ((grid - radius) / width) ** 2)
    quantiles = np.cumsum(density) / density.sum()

    def energy(x):
        return 0.5 * ((jnp.sqrt(jnp.sum(x**2)) - radius) / width) ** 2

    def draw(rng, n):
        way = rng.standard_normal((n, size))
        far = np.interp(rng.random(n), quantiles, grid)[:, None]
        return far * way / np.linalg.norm(way, axis=1, keepdims=True)

    def functions(x):
        return {f"x{i}": x[i] for i in range(size)} | {"radius": jnp.sqrt(jnp.sum(x**2))}

    return _bare("ring", "a shell of width .1, 5-d", size, 4.0, energy, draw, functions=functions)


def banana_and_mode() -> Target:
    def energy(x):
        banana = (
            normal(x[0], 0, 3) + normal(x[1], 0.2 * x[0] ** 2 - 2, 0.3) + jnp.sum(normal(x[2:]))
        )
        second = jnp.sum(normal(x, jnp.array([0.0, 8.0, 3.0, 3.0]), 0.5))
        return -jnp.logaddexp(banana + jnp.log(0.7), second + jnp.log(0.3))

    def draw(rng, n):
        x = rng.standard_normal((n, 4))
        x[:, 0] *= 3
        x[:, 1] = 0.2 * x[:, 0] ** 2 - 2 + 0.3 * x[:, 1]
        second = np.array([0.0, 8.0, 3.0, 3.0]) + 0.5 * rng.standard_normal((n, 4))
        return np.where(rng.random((n, 1)) < 0.3, second, x)

    return _bare("banana-and-mode", "a banana of mass .7 and a mode, 4-d", 4, 4.0, energy, draw)


def funnel_and_mode() -> Target:
    def energy(x):
        funnel = normal(x[0], 0, 1.5) + jnp.sum(normal(x[1:], 0, jnp.exp(x[0] / 2)))
        second = jnp.sum(normal(x, jnp.array([0.0, 8, 8, 8, 8]), 1.0))
        return -jnp.logaddexp(funnel + jnp.log(0.6), second + jnp.log(0.4))

    def draw(rng, n):
        x = rng.standard_normal((n, 5))
        x[:, 0] *= 1.5
        x[:, 1:] *= np.exp(x[:, :1] / 2)
        second = np.array([0.0, 8, 8, 8, 8]) + rng.standard_normal((n, 5))
        return np.where(rng.random((n, 1)) < 0.4, second, x)

    return _bare("funnel-and-mode", "a funnel of mass .6 and a mode, 5-d", 5, 4.0, energy, draw)


def heavy_modes() -> Target:
    freedom, size = 3.0, 5
    centres, scales, masses = np.array([-6.0, 6.0]), np.array([1.0, 0.5]), np.array([0.7, 0.3])

    def energy(x):
        square = jnp.sum((x - centres[:, None]) ** 2, axis=1) / scales**2
        logs = -(freedom + size) / 2 * jnp.log1p(square / freedom) - size * jnp.log(scales)
        return -jax.nn.logsumexp(logs + jnp.log(masses))

    def draw(rng, n):
        label = rng.choice(2, size=n, p=masses)
        tail = np.sqrt(rng.chisquare(freedom, n) / freedom)
        x = rng.standard_normal((n, size)) * (scales[label] / tail)[:, None]
        return x + centres[label][:, None]

    def functions(x):
        return {f"x{i}": jnp.arctan(x[i] / 3) for i in range(size)}

    title = "two Student modes of 3 degrees of freedom, 5-d"
    return _bare("heavy-modes", title, size, 6.0, energy, draw, functions=functions,
                 mode=lambda x: jnp.where(jnp.mean(x) > 0, 1, 0))  # fmt: skip


def simplex() -> Target:
    alpha = np.array([1.0, 1.5, 2.0, 4.0, 1.2])

    def energy(x):
        last = 1 - jnp.sum(x)
        inside = (jnp.min(x) > 0) & (last > 0)
        full = jnp.where(inside, jnp.append(x, last), 1.0)
        return jnp.where(inside, -jnp.sum((alpha - 1) * jnp.log(full)), jnp.inf)

    def draw(rng, n):
        return rng.dirichlet(alpha, n)[:, :-1]

    target = _bare("simplex", "a Dirichlet law with walls, 4-d", 4, 0.1, energy, draw)
    return replace(target, start=lambda key: 0.2 * jax.random.uniform(key, (4,)))


def egg_box() -> Target:
    def energy(x):
        return jnp.sum(x**2) / 50 - 4 * jnp.sum(jnp.cos(2 * x))

    grid = np.linspace(-30, 30, 200_001)
    density = np.exp(-(grid**2) / 50 + 4 * np.cos(2 * grid) - 4)
    quantiles = np.cumsum(density) / density.sum()

    def draw(rng, n):
        return np.interp(rng.random((n, 3)), quantiles, grid)

    return _bare("egg-box", "an egg box of some hundred modes, 3-d", 3, 5.0, energy, draw)


def spike_and_slab() -> Target:
    """A regression whose coefficients are near 0 or not: 2^8 conjugate models."""
    rng, size, narrow, wide, noise = np.random.default_rng(5), 8, 0.05, 1.5, 1.0
    x = rng.standard_normal((60, size))
    x[:, 1] = 0.9 * x[:, 0] + 0.3 * x[:, 1]
    y = x @ np.array([0.6, 0, 0.3, 0, 0, -1, 0.25, 0]) + noise * rng.standard_normal(60)

    def energy(coef):
        parts = jnp.stack([normal(coef, 0, narrow), normal(coef, 0, wide)])
        prior = jnp.sum(jax.nn.logsumexp(parts, axis=0) - jnp.log(2.0))
        return jnp.sum((y - x @ coef) ** 2) / (2 * noise**2) - prior

    models = []
    for sd in product((narrow, wide), repeat=size):
        precision = x.T @ x / noise**2 + np.diag(1 / np.square(sd))
        mean = np.linalg.solve(precision, x.T @ y) / noise**2
        log_weight = mean @ precision @ mean / 2 - np.linalg.slogdet(precision)[1] / 2
        models.append((log_weight - np.log(sd).sum(), mean, precision))
    weight = np.exp(np.array([one[0] for one in models]) - max(one[0] for one in models))
    roots = np.stack([np.linalg.inv(np.linalg.cholesky(one[2])).T for one in models])
    means = np.stack([one[1] for one in models])

    def draw(rng, n):
        label = rng.choice(len(models), size=n, p=weight / weight.sum())
        return means[label] + np.einsum("nij,nj->ni", roots[label], rng.standard_normal((n, size)))

    title = "a regression with spikes and slabs, 8-d"
    return _bare("spike-and-slab", title, size, 1.0, energy, draw,
                 functions=lambda c: {f"x{i}": c[i] for i in range(size)})  # fmt: skip


def _sine_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(12)
    times = np.sort(rng.uniform(0, 10, 60))
    return times, 0.5 * np.sin(2 * np.pi * 1.3 * times) + rng.standard_normal(60)


def sine(is_bare: bool = False) -> Target:
    """A sine of unknown frequency, uniform on (0, 3), in 60 noisy points; amplitudes are normal."""
    times, y = _sine_data()
    free = lambda z: 3 * jax.scipy.stats.norm.cdf(z)  # noqa: E731

    def signal(x, t):
        angle = 2 * jnp.pi * free(x[2]) * t
        return x[0] * jnp.sin(angle) + x[1] * jnp.cos(angle)

    rows = {"t": jnp.asarray(times, jnp.float32), "y": jnp.asarray(y, jnp.float32)}
    log_likelihood = lambda x, rows: normal(rows["y"], signal(x, rows["t"]))  # noqa: E731
    log_prior = lambda x: jnp.sum(normal(x))  # noqa: E731
    grid = (np.arange(60_000) + 0.5) / 20_000  # frequencies
    angle = 2 * np.pi * grid[:, None] * times
    waves = np.stack([np.sin(angle), np.cos(angle)], axis=2)  # (frequency, row, 2)
    precision = np.einsum("fri,frj->fij", waves, waves) + np.eye(2)
    towards = np.einsum("fri,r->fi", waves, y)
    means = np.linalg.solve(precision, towards[:, :, None])[:, :, 0]
    log_weight = np.einsum("fi,fi->f", means, towards) / 2 - np.linalg.slogdet(precision)[1] / 2
    weight = np.exp(log_weight - log_weight.max())
    evidence = float(
        np.log(weight.mean()) + log_weight.max() - np.sum(y**2) / 2 - 30 * np.log(2 * np.pi)
    )
    roots = np.linalg.inv(np.linalg.cholesky(precision)).swapaxes(1, 2)

    def draw(rng, n):
        from scipy.special import ndtri

        chosen = rng.choice(len(grid), size=n, p=weight / weight.sum())
        two = means[chosen] + np.einsum("nij,nj->ni", roots[chosen], rng.standard_normal((n, 2)))
        far = (grid[chosen] + (rng.random(n) - 0.5) / 20_000) / 3
        return np.concatenate([two, ndtri(far)[:, None]], axis=1)

    def functions(x):
        power = x[0] ** 2 + x[1] ** 2
        return {"a": x[0], "b": x[1], "frequency": free(x[2]), "power": power}

    given: dict[str, Any] = {
        "log_likelihood": log_likelihood, "log_prior": log_prior, "data": rows,
        "log_evidence": lambda: evidence,
    }  # fmt: skip
    if is_bare:
        given = {"bare": lambda x: -jnp.sum(log_likelihood(x, rows)) - log_prior(x)}
    name = "sine-bare" if is_bare else "sine"
    return Target(
        name, "a sine of unknown frequency, 60 points", start_of(3, 1.0), functions,
        exact=draw, num_steps=None, **given,
    )  # fmt: skip


def change_points() -> Target:
    """Two times at which the mean of 80 rows changes, uniform; three normal levels."""
    rng, count = np.random.default_rng(9), 80
    level = np.repeat([0.0, 1.0, 0.2], [25, 20, 35])
    y = level + rng.standard_normal(count)
    rows = {"t": jnp.arange(count, dtype=jnp.float32) + 0.5, "y": jnp.asarray(y, jnp.float32)}
    times = lambda x: count * jnp.sort(jax.scipy.stats.norm.cdf(x[:2]))  # noqa: E731

    def log_likelihood(x, rows):
        part = jnp.sum(rows["t"][:, None] > times(x), axis=1)
        return normal(rows["y"], 2 * x[2:][part])

    sums = np.append(0, np.cumsum(y))
    squares = 4.0  # prior variance of a level

    def log_mean(i, j):  # log of the integral over the level of rows i to j
        n, total = j - i, sums[j] - sums[i]
        whole = np.maximum(1 + n * squares, 1.0)  # of no part where j is below i
        return total**2 * squares / (2 * whole) - np.log(whole) / 2

    # A time t between the middles of rows i - 1 and i begins a part at row i.
    at = np.arange(count + 1)
    lengths = np.where((at == 0) | (at == count), 0.5, 1.0)
    first, second = np.meshgrid(at, at, indexing="ij")
    logs = log_mean(0, first) + log_mean(first, second) + log_mean(second, count)
    logs += np.log(lengths[first]) + np.log(lengths[second])
    logs = np.where(first < second, logs + np.log(2), np.where(first == second, logs, -np.inf))
    weight = np.exp(logs - logs.max()).ravel()
    evidence = float(np.log(weight.sum()) + logs.max() - 2 * np.log(count)
                     - np.sum(y**2) / 2 - count / 2 * np.log(2 * np.pi))  # fmt: skip

    def draw(rng, n):
        from scipy.special import ndtri

        chosen = rng.choice(weight.size, size=n, p=weight / weight.sum())
        ends = np.stack([first.ravel()[chosen], second.ravel()[chosen]], axis=1)
        low, high = np.maximum(ends - 0.5, 0), np.minimum(ends + 0.5, count)
        when = np.sort(low + (high - low) * rng.random((n, 2)), axis=1)
        edges = np.concatenate([np.zeros((n, 1), int), ends, np.full((n, 1), count)], axis=1)
        size, total = np.diff(edges), np.diff(sums[edges])
        precision = size + 1 / squares
        levels = total / precision + rng.standard_normal((n, 3)) / np.sqrt(precision)
        swapped = rng.random(n) < 0.5
        when[swapped] = when[swapped, ::-1]
        return np.concatenate([ndtri(when / count), levels / 2], axis=1)

    def functions(x):
        when = times(x)
        return {"first": when[0], "second": when[1]} | {f"level{i}": x[2 + i] for i in range(3)}

    return Target(
        "change-points", "two change points in 80 rows, 5-d", start_of(5, 1.0), functions,
        log_likelihood=log_likelihood, log_prior=lambda x: jnp.sum(normal(x)), data=rows,
        exact=draw, log_evidence=lambda: evidence, num_steps=None,
    )  # fmt: skip


def sorted_labels() -> Target:
    """Three unequal components whose labels can be exchanged, and nobody says so."""
    at, sd = np.array([-4.0, 0.0, 5.0]), np.array([0.3, 0.8, 1.5])
    orders = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
    centres = np.concatenate([at[orders], np.log(sd)[orders]], axis=1)
    widths = np.concatenate([(sd / 10)[orders], np.full((6, 3), 0.1)], axis=1)
    title = "three unequal components, six orders of labels, 6-d"
    return normals("sorted-labels", title, 2.0, np.ones(6), centres, widths)


def far_away() -> Target:
    centres = np.stack([np.zeros(3), np.full(3, 60.0)])
    title = "a second mode a hundred start widths away, 3-d"
    return normals("far-away", title, 1.0, [0.5, 0.5], centres, [1.0, 1.0])


def needle() -> Target:
    centres = np.stack([np.zeros(10), np.full(10, 2.0)])
    title = "half of the mass in a needle of width .02, 10-d"
    return normals("needle", title, 2.0, [0.5, 0.5], centres, [1.0, 0.02])


STRANGERS: dict[str, Callable[[], Target]] = {
    "two-widths": two_widths,
    "three-widths": three_widths,
    "many-dimensions": many_dimensions,
    "concentric": concentric,
    "off-centre": off_centre,
    "comb": comb,
    "scaled-modes": scaled_modes,
    "ring": ring,
    "banana-and-mode": banana_and_mode,
    "funnel-and-mode": funnel_and_mode,
    "heavy-modes": heavy_modes,
    "simplex": simplex,
    "egg-box": egg_box,
    "spike-and-slab": spike_and_slab,
    "sine": sine,
    "sine-bare": lambda: sine(is_bare=True),
    "change-points": change_points,
    "sorted-labels": sorted_labels,
    "far-away": far_away,
    "needle": needle,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(STRANGERS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    every: list[dict] = []
    for name in options.names or STRANGERS:
        target = STRANGERS[name]()
        found = fresh.run(target, fresh.truth_of(target), options.seed, None)
        fresh.tell(found, every, options.json)


if __name__ == "__main__":
    main()
