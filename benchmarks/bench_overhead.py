"""What exchange, adaptation and records add to the moves, at 16 replicas on one core.

The moves alone draw the same randomness and compute the same gradients and energies, in the same
kind of loop. First on the 25 modes, where a move costs next to nothing, then on a logistic
regression whose gradient costs 50 us or more.
"""

from argparse import Namespace
from collections.abc import Callable

import jax
import jax.numpy as jnp
from loop import TOY, Loop, toy_method
from timing import Check, Row, interleave, parse_arguments, report, use_one_core

import replicax as rx

_UNIT = "us/iteration"
_NUM_FEATURES = 50


def main() -> None:
    arguments = parse_arguments(__doc__, repeats=15)
    use_one_core()
    rows, checks = [], []

    toy = Loop(rx.targets.modes25(), rx.targets.modes25_start, _steps(arguments, 20_000), **TOY)
    timings = interleave(
        {"full": toy, "moves": toy.moves_alone(), "gradients": toy.moves_alone(energies=False)},
        arguments.repeats,
    )
    rows += [
        Row.of("25 modes: full step", _UNIT, timings["full"]),
        Row.of("  moves alone", _UNIT, timings["gradients"]),
        Row.of("  energies of the moved states", _UNIT, timings["moves"] - timings["gradients"]),
        Row.of("  exchange, adaptation, records", _UNIT, timings["full"] - timings["moves"]),
    ]
    checks.append(Check.of(rows[-1], bound=1.5))

    energy = logistic_regression(num_rows=100 if arguments.quick else 5_000)
    gradient = one_gradient(energy, _steps(arguments, 500))
    steps = _steps(arguments, 200)
    for energy_at in ("before",) if arguments.quick else ("before", "moved"):
        method = toy_method((1e-5, 1e-4), energy_at=energy_at)
        loop = Loop(energy, jnp.zeros(_NUM_FEATURES), steps, **{**TOY, "method": method})
        cases = {"full": loop, "moves": loop.moves_alone(), "gradient": gradient}
        timings = interleave(cases, arguments.repeats)
        share = (timings["full"] - timings["moves"]) / timings["moves"] * 100
        name = f'logistic regression, energy_at="{energy_at}"'
        rows += [
            Row.of(name, _UNIT, timings["full"]),
            Row.of("  one gradient of one replica", "us", timings["gradient"]),
            Row.of("  moves and energies alone", _UNIT, timings["moves"]),
            Row.of(f'  share of the rest, "{energy_at}"', "%", share),
        ]
        checks.append(Check.of(rows[-1], bound=5.0))
    report(rows, checks, arguments)


def _steps(arguments: Namespace, steps: int) -> int:
    return min(steps, 100) if arguments.quick else steps


def logistic_regression(num_rows: int) -> Callable:
    """Minus log posterior of made-up data under a standard normal prior."""
    key, other = jax.random.split(jax.random.key(0))
    inputs = jax.random.normal(key, (num_rows, _NUM_FEATURES))
    truth = jax.random.normal(other, (_NUM_FEATURES,))
    labels = jnp.sign(inputs @ truth)

    def energy(weights: jax.Array) -> jax.Array:
        misfit = jnp.logaddexp(0.0, -labels * (inputs @ weights))
        return jnp.sum(misfit) + 0.5 * jnp.sum(weights**2)

    return energy


def one_gradient(energy: Callable, steps: int) -> Callable[[], int]:
    """Gradients of one replica, one after another."""

    @jax.jit
    def descend(weights):
        descent = lambda _, weights: weights - 1e-5 * jax.grad(energy)(weights)  # noqa: E731
        return jax.lax.fori_loop(0, steps, descent, weights)

    def case() -> int:
        jax.block_until_ready(descend(jnp.zeros(_NUM_FEATURES)))
        return steps

    return case


if __name__ == "__main__":
    main()
