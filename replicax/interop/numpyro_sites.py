"""The sites of a NumPyro model, read without computing anything."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from replicax.errors import is_concrete


class Site(NamedTuple):
    """A sample site, as known before the model is run on numbers."""

    is_observed: bool
    is_discrete: bool
    batch_shape: tuple[int, ...]
    plates: dict[int, str]  # by axis, from the end
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    value: Any  # the observed argument, None if it is not observed directly


def read_sites(
    numpyro: Any, model: Callable, args: tuple, kwargs: dict
) -> tuple[dict[str, Site], dict[str, tuple]]:
    """Return the sample sites of a model, and the sizes of plates; nothing is computed."""
    samples: dict[str, Site] = {}
    plates: dict[str, tuple] = {}
    params: list[tuple[str, str]] = []

    def read() -> None:
        seeded = numpyro.handlers.seed(model, jax.random.key(0))
        for name, site in numpyro.handlers.trace(seeded).get_trace(*args, **kwargs).items():
            if site["type"] == "plate":
                plates[name] = site["args"]
            elif site["type"] in ("param", "mutable"):
                params.append((site["type"], name))
            elif site["type"] == "sample":
                samples[name] = _read_site(numpyro, site)

    jax.eval_shape(read)
    if params:
        kind, name = params[0]
        raise ValueError(
            f"The model has the {kind} site {name!r}, which has no prior: give it one with "
            "numpyro.sample."
        )
    return samples, plates


def _read_site(numpyro: Any, site: dict[str, Any]) -> Site:
    fn, observed = site["fn"], bool(site["is_observed"])
    value: Any = site["value"]
    is_discrete = not observed and bool(fn.support.is_discrete)
    own = shape = np.shape(value)
    if not observed and not is_discrete:
        shape = np.shape(numpyro.distributions.biject_to(fn.support).inv(value))
    concrete = observed and value is not None and is_concrete(value)
    return Site(
        observed,
        is_discrete,
        tuple(fn.batch_shape),
        {frame.dim: frame.name for frame in site["cond_indep_stack"]},
        own,
        shape,
        value if concrete else None,
    )


def check_sites(samples: dict[str, Site], latent: tuple[str, ...]) -> None:
    if not latent:
        raise ValueError("The model has no latent site: nothing to sample.")
    if len(latent) == len(samples):
        raise ValueError("The model observes nothing: give its data, as in model(x, y=y).")
    for name in latent:
        if samples[name].is_discrete:
            raise ValueError(
                f"The latent site {name!r} is discrete, but only continuous sites can be sampled: "
                "sum over its values in the model, as numpyro.distributions.MixtureSameFamily does."
            )


def still_observed(
    numpyro: Any, model: Callable, latent: tuple[str, ...], args: tuple, kwargs: dict
) -> list[str]:
    """Return the sites that the model still observes with these arguments; raise unless it draws
    sites other than the latent ones."""
    hint = "call posterior.predictive with arguments of the model for which it draws its data"
    try:
        samples, _ = read_sites(numpyro, model, args, kwargs)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"The model fails with None instead of its observed values ({error}): {hint}."
        ) from error
    observed = [name for name, site in samples.items() if site.is_observed]
    if not set(samples) - set(observed) - set(latent):
        raise ValueError(
            f"The site {observed[0]!r} does not observe an argument of the model directly, so it "
            f"would not be drawn: {hint}."
        )
    return observed


def count_rows(samples: dict[str, Site], lengths: list[int | None]) -> int | None:
    """Return the number of observations: the length of the first observed site with such an axis,
    preferably one that is as long as an argument."""
    shapes = [site.batch_shape for site in samples.values() if site.is_observed]
    fits = [length for shape in shapes for length in shape if length in lengths and length > 1]
    others = [shape[0] for shape in shapes if shape]
    return next(iter(fits + others), None)


def plates_of(site: Site) -> list[str | None]:
    """Return the plate of each axis of a site, or None."""
    batch = len(site.batch_shape)
    return [site.plates.get(axis - batch) for axis in range(len(site.shape))]
