"""The targets of inference_gym that need no download, each with one call of `rx.sample`.

    pip install inference_gym tfp-nightly
    python benchmarks/truth/gym.py [TARGET ...] [--json FILE]

Parameters are unconstrained, by the bijectors of the package; starts are N(0, 1), which is all that
a user knows of them. The truth is that of the package: means and standard deviations of parameters.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import fresh
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from target import Target

NAMES = (
    "Banana",
    "BrownianMotionMissingMiddleObservations",
    "BrownianMotionUnknownScalesMissingMiddleObservations",
    "EightSchools",
    "IllConditionedGaussian",
    "NealsFunnel",
    "ConvectionLorenzBridge",
    "ConvectionLorenzBridgeUnknownScales",
    "SyntheticLogGaussianCoxProcess",
    "VectorizedStochasticVolatilitySP500Small",
    "VectorizedStochasticVolatilityLogSP500Small",
    "SyntheticItemResponseTheory",
)


def made(name: str) -> tuple[Target, dict[str, Any]]:
    """Return a target and its reference."""
    from inference_gym import using_jax

    model = getattr(using_jax.targets, name)()
    bijectors = model.default_event_space_bijector
    is_one = lambda leaf: hasattr(leaf, "forward")  # noqa: E731
    free = jax.tree.map(
        lambda one, shape: jnp.zeros(one.inverse_event_shape(shape)),
        bijectors, model.event_shape, is_leaf=is_one,
    )  # fmt: skip
    flat, unravel = ravel_pytree(free)

    def constrained(x):
        return jax.tree.map(lambda one, leaf: one.forward(leaf), bijectors, unravel(x),
                            is_leaf=is_one)  # fmt: skip

    def energy(x):
        pairs = zip(jax.tree.leaves(bijectors, is_leaf=is_one), jax.tree.leaves(unravel(x)))
        volume = sum(
            jnp.sum(one.forward_log_det_jacobian(leaf, event_ndims=np.ndim(leaf)))
            for one, leaf in pairs
        )
        return -model.unnormalized_log_prob(constrained(x)) - volume

    identity = model.sample_transformations["identity"]

    def functions(x):
        values = ravel_pytree(identity(constrained(x)))[0]
        return {f"x{i}": values[i] for i in range(values.size)}

    truth = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(moments)])
             for moments in (identity.ground_truth_mean,
                             identity.ground_truth_standard_deviation)]  # fmt: skip
    target = Target(
        name, f"{name}, {flat.size}-d", lambda key: jax.random.normal(key, flat.shape), functions,
        bare=energy, num_steps=None,
    )  # fmt: skip
    moments = {
        f"x{i}": {"mean": float(mean), "sd": float(sd)}
        for i, (mean, sd) in enumerate(zip(*truth, strict=True))
    }
    return target, {"method": "inference_gym", "functions": moments}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    every: list[dict] = []
    for name in options.targets or NAMES:
        target, truth = made(name)
        fresh.tell(fresh.run(target, truth, options.seed, None), every, options.json)


if __name__ == "__main__":
    main()
