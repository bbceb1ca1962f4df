"""Two modes of known masses: how far apart, and in how many dimensions, are they found?

    python benchmarks/truth/separation.py [--sizes 2 4 ...] [--distances 4 8 ...] [--json FILE]

The modes are .7 N(-a, 1) and .3 N(a, w^2) around points a distance of so many standard deviations
apart, in a direction that is no axis; starts are as wide as that. Nothing is given to `rx.sample`.
With `--width .7` the smaller mode is narrow: in many dimensions hot replicas and descents from far
away hardly ever meet it.
"""

import argparse
import warnings
from itertools import product
from pathlib import Path

import fresh
import jax
import jax.numpy as jnp
import numpy as np
from target import Target, normal

from replicax.run.search import search

SIZES, DISTANCES = (2, 4, 8, 16, 32, 64), (4.0, 8.0, 16.0, 32.0)
_MASSES = np.array([0.7, 0.3])


def two_apart(size: int, distance: float, width: float = 1.0) -> Target:
    """Return the target."""
    sd = np.array([1.0, width])
    direction = np.random.default_rng(size).standard_normal(size)
    direction *= distance / 2 / np.linalg.norm(direction)
    centres = np.stack([-direction, direction])

    def energy(x):
        parts = jnp.sum(normal(x, centres, sd[:, None]), axis=1)
        return -jax.nn.logsumexp(parts + jnp.log(_MASSES))

    def draw(rng, n):
        label = rng.choice(2, size=n, p=_MASSES)
        return centres[label] + sd[label][:, None] * rng.standard_normal((n, size))

    return Target(
        f"apart-{size}-{distance:g}", f"{distance:g} sd apart, {size}-d",
        lambda key: distance / 2 * jax.random.normal(key, (size,)),
        lambda x: {"along": x @ direction / distance * 2, "x0": x[0]},
        bare=energy, exact=draw, mode=lambda x: jnp.where(x @ direction > 0, 1, 0),
        masses=tuple(_MASSES), log_evidence=lambda: 0.0, num_steps=None,
    )  # fmt: skip


def share_found(size: int, width: float, count: int, scale: float = 4.0) -> float:
    """Return in how many of `count` placements of two modes the search finds both."""
    found = 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        centres = scale * rng.standard_normal((2, size))
        sd = np.array([1.0, width])

        def energy(x, data=None, centres=centres, sd=sd):
            parts = jnp.sum(normal(x, centres, sd[:, None]), axis=1)
            return -jax.nn.logsumexp(parts + jnp.log(_MASSES))

        starts = scale * rng.standard_normal((32 + 256, size)).astype(np.float32)
        minima = search(energy, starts[:32], budget=10_000, more=starts[32:],
                        evaluate=jax.jit(jax.vmap(energy))).minima  # fmt: skip
        found += len(minima) > 1
    return found / count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--distances", type=float, nargs="+", default=DISTANCES)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--search", type=int, metavar="N", help="placements for the search alone")
    parser.add_argument("--widths", type=float, nargs="+", default=(0.7, 0.5, 0.3))
    options = parser.parse_args()
    for width, size in product(options.widths if options.search else (), options.sizes):
        share = share_found(size, width, options.search)
        print(f"|{width:g}|{size}|{share:.2f}|", flush=True)
    if options.search:
        return
    warnings.simplefilter("ignore")
    every: list[dict] = []
    for size in options.sizes:
        for distance in options.distances:
            target = two_apart(size, distance, options.width)
            found = {"size": size, "distance": distance, "width": options.width}
            found |= fresh.run(target, fresh.truth_of(target), options.seed, None)
            fresh.tell(found, every, options.json)


if __name__ == "__main__":
    main()
