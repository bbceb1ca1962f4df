"""Targets without data: a bare energy, and independent draws from it."""

import jax
import jax.numpy as jnp
import numpy as np
from target import Target, normal

import replicax as rx

# Liang and Wong (2001), JASA 96: twenty modes of standard deviation .1 in a square of side 10.
_TWENTY = np.array([
    (2.18, 5.76), (8.67, 9.59), (4.24, 8.48), (8.41, 1.68), (3.93, 8.82),
    (3.25, 3.47), (1.70, 0.50), (4.59, 5.60), (6.91, 5.81), (6.87, 5.40),
    (5.41, 2.65), (2.70, 7.88), (4.98, 3.70), (1.14, 2.39), (8.33, 9.50),
    (4.93, 1.50), (1.83, 0.09), (2.26, 0.31), (5.54, 6.86), (1.69, 8.11),
])  # fmt: skip


def funnel() -> Target:
    """Neal's funnel: v ~ N(0, 3²), nine x ~ N(0, exp v)."""

    def energy(x):
        v, rest = x[0], x[1:]
        return v**2 / 18 + jnp.sum(rest**2) * jnp.exp(-v) / 2 + rest.size * v / 2

    def draw(rng, n):
        v = 3 * rng.standard_normal((n, 1))
        return np.concatenate([v, np.exp(v / 2) * rng.standard_normal((n, 9))], 1)

    def functions(x):
        return {"v": x[0], "log|x1|": jnp.log(jnp.abs(x[1])), "asinh x2": jnp.arcsinh(x[2])}

    return Target(
        "funnel", "Neal's funnel, 10-d", lambda key: 2 * jax.random.normal(key, (10,)), functions,
        bare=energy, exact=draw, num_steps=60_000,
    )  # fmt: skip


def twenty_modes() -> Target:
    """Return twenty equal modes, .4 to 10 apart, of standard deviation .1."""
    centres = jnp.asarray(_TWENTY)

    def energy(x):
        return -jax.nn.logsumexp(-jnp.sum((x - centres) ** 2, -1) / (2 * 0.1**2))

    def draw(rng, n):
        return _TWENTY[rng.integers(20, size=n)] + 0.1 * rng.standard_normal((n, 2))

    return Target(
        "twenty-modes", "twenty modes, 2-d",
        lambda key: jax.random.uniform(key, (2,), maxval=10.0),
        lambda x: {"x": x[0], "y": x[1]}, bare=energy, exact=draw,
        mode=lambda x: jnp.argmin(jnp.sum((x - centres) ** 2, -1)), num_steps=30_000,
        log_evidence=lambda: float(np.log(20 * 2 * np.pi * 0.1**2)),
    )  # fmt: skip


def modes_25() -> Target:
    """Return the paper's 25 modes (section 5.1); what lies outside belongs to the nearest."""

    def mode(x):
        place = jnp.clip(jnp.round(x), -2, 2).astype(int) + 2
        return place[0] * 5 + place[1]

    def integral():
        side = np.linspace(-8.0, 8.0, 3_201)
        x = jnp.asarray(np.stack(np.meshgrid(side, side), -1).reshape(-1, 2))
        cell = (side[1] - side[0]) ** 2
        energies = np.asarray(jax.jit(jax.vmap(rx.targets.modes25_energy))(x), float)
        return float(np.log(np.exp(-energies).sum() * cell))

    return Target(
        "modes-25", "the paper's 25 modes, 2-d",
        lambda key: jax.random.uniform(key, (2,), minval=-3.0, maxval=3.0),
        lambda x: {"x": x[0], "y": x[1], "energy": rx.targets.modes25_energy(x)},
        bare=rx.targets.modes25_energy, exact=rx.targets.modes25_draws, mode=mode,
        noisy=rx.targets.modes25(), log_evidence=integral,
    )  # fmt: skip


def chain(size: int = 32, well: float = 2.0, coupling: float = 8.0, field: float = 0.01) -> Target:
    """Return a chain of coupled double wells with a weak field: all up or all down."""

    def energy(x):
        wells = well * (x**2 - 1) ** 2 - field * x
        return jnp.sum(wells) + coupling / 2 * jnp.sum(jnp.diff(x) ** 2)

    def integral():
        """Return it by the transfer matrix."""
        grid = np.linspace(-2.5, 2.5, 2_001)
        cell = grid[1] - grid[0]
        site = np.exp(-well * (grid**2 - 1) ** 2 + field * grid)
        bond = np.exp(-coupling / 2 * (grid[:, None] - grid) ** 2)
        ahead, found = np.ones(grid.size), 0.0
        for _ in range(size - 1):
            ahead = bond @ (site * ahead) * cell
            found += np.log(ahead.max())
            ahead /= ahead.max()
        return float(found + np.log(np.sum(site * ahead) * cell))

    def draw(rng, n):
        """Site by site, from the conditional laws that the transfer matrix gives on a grid."""
        grid = np.linspace(-2.2, 2.2, 441)
        site = np.exp(-well * (grid**2 - 1) ** 2 + field * grid)
        bond = np.exp(-coupling / 2 * (grid[:, None] - grid) ** 2)
        ahead = [np.ones(grid.size)]  # the weight of all sites to the right, given this one
        for _ in range(size - 1):
            ahead.append(bond @ (site * ahead[-1]))
            ahead[-1] /= ahead[-1].max()
        at = _choose(rng, np.broadcast_to(site * ahead.pop(), (1, grid.size)), np.zeros(n, int))
        places = [at]
        while ahead:
            at = _choose(rng, bond * (site * ahead.pop()), at)
            places.append(at)
        return grid[np.stack(places, 1)] + (rng.random((n, size)) - 0.5) * (grid[1] - grid[0])

    def functions(x):
        return {"first": x[0], "middle": x[size // 2], "mean": x.mean(), "energy": energy(x)}

    return Target(
        "chain-32", "coupled double wells, 32-d", lambda key: jax.random.normal(key, (size,)),
        functions, bare=energy, exact=draw, mode=lambda x: jnp.where(x.mean() > 0, 1, 0),
        num_steps=40_000, num_replicas=12, log_evidence=integral,
    )  # fmt: skip


def _choose(rng: np.random.Generator, weights: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Draw a column from the row of each draw, in proportion to the weights."""
    share = np.cumsum(weights, 1) / weights.sum(1, keepdims=True)
    return np.array([np.searchsorted(share[i], u) for i, u in zip(row, rng.random(row.size))])


def unequal_modes() -> Target:
    """Return .8 N(0, .4²) + .2 N(6, 1) in five dimensions: the wide mode is the small one."""
    weights, centres, widths = np.array([0.8, 0.2]), np.array([0.0, 6.0]), np.array([0.4, 1.0])

    def energy(x):
        parts = jnp.sum(normal(x[:, None], centres, widths), 0)
        return 7.0 - jax.nn.logsumexp(parts + jnp.log(weights))

    def draw(rng, n):
        k = rng.choice(2, size=(n, 1), p=weights)
        return centres[k] + widths[k] * rng.standard_normal((n, 5))

    return Target(
        "unequal-modes", "modes of mass .8 and .2 and width .4 and 1, 5-d",
        lambda key: jax.random.uniform(key, (5,), minval=-4.0, maxval=10.0),
        lambda x: {"x1": x[0], "x2": x[1], "mean": x.mean()}, bare=energy, exact=draw,
        mode=lambda x: jnp.where(x.mean() > 2.5, 1, 0),
    )  # fmt: skip


def student() -> Target:
    """Return a Student law of three degrees of freedom, 5-d, location 2, correlated."""
    root = np.linalg.cholesky(0.6 * np.ones((5, 5)) + 0.4 * np.eye(5))
    inverse = jnp.asarray(np.linalg.inv(root))

    def energy(x):
        return 4.0 * jnp.log1p(jnp.sum((inverse @ (x - 2.0)) ** 2) / 3)

    def draw(rng, n):
        return 2 + rng.standard_normal((n, 5)) @ root.T / np.sqrt(rng.chisquare(3, (n, 1)) / 3)

    def functions(x):
        radius = jnp.sum((inverse @ (x - 2.0)) ** 2)
        return {"asinh x1": jnp.arcsinh(x[0]), "asinh x5": jnp.arcsinh(x[4]),
                "log radius": jnp.log(radius) / 2}  # fmt: skip

    return Target(
        "student", "Student's t, 3 degrees of freedom, 5-d",
        lambda key: 5 * jax.random.normal(key, (5,)), functions, bare=energy, exact=draw,
    )  # fmt: skip


def scales() -> Target:
    """Return a Gaussian with standard deviations .01, .1, 1, 10, 100, neighbours correlated."""
    sd = np.array([0.01, 0.1, 1.0, 10.0, 100.0])
    correlation = 0.5 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    root = np.linalg.cholesky(correlation)
    inverse = jnp.asarray(np.linalg.inv(root))

    def energy(x):
        return jnp.sum((inverse @ ((x - 1.0) / sd)) ** 2) / 2

    return Target(
        "scales", "Gaussian, scales .01 to 100, 5-d", lambda key: jax.random.normal(key, (5,)),
        lambda x: {f"x{i + 1}": x[i] for i in range(5)}, bare=energy,
        exact=lambda rng, n: 1 + sd * (rng.standard_normal((n, 5)) @ root.T),
    )  # fmt: skip


def ten_modes(size: int = 10) -> Target:
    """Return ten Gaussians far apart in ten dimensions, of masses 1 to 10, in 55."""
    centres = np.random.default_rng(2).uniform(-10.0, 10.0, (10, size))
    masses = np.arange(1, 11) / 55
    places, log_masses = jnp.asarray(centres), jnp.asarray(np.log(masses))

    def energy(x):
        return -jax.nn.logsumexp(log_masses - jnp.sum((x - places) ** 2, -1) / 2)

    def draw(rng, n):
        return centres[rng.choice(10, size=n, p=masses)] + rng.standard_normal((n, size))

    return Target(
        "ten-modes", "ten modes of unequal mass, 10-d",
        lambda key: jax.random.uniform(key, (size,), minval=-10.0, maxval=10.0),
        lambda x: {"x1": x[0], "x2": x[1]}, bare=energy, exact=draw,
        mode=lambda x: jnp.argmin(jnp.sum((x - places) ** 2, -1)), num_steps=20_000,
        num_replicas=12,
    )  # fmt: skip
