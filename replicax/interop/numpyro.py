"""NumPyro models as `rx.bayesian` posteriors: separate likelihood and prior, rows as mini-batches.

Sampling works on unconstrained numbers, stored as `unconstrained.NAME`; draws are constrained and
named after the sites, including deterministic ones.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import Array

from replicax.interop.extras import import_extra
from replicax.interop.numpyro_model import Model
from replicax.interop.numpyro_sites import Site, check_sites, count_rows, plates_of, read_sites
from replicax.run.bayesian import Bayesian, bayesian

_POSITION = "unconstrained"


def from_numpyro(
    model: Callable, *args: Any, batch_size: int | None = None, **kwargs: Any
) -> Bayesian:
    """Return the posterior of a NumPyro model called with these arguments, for `rx.sample`.

    Log densities of observed sites are the likelihood, which hot rungs temper; those of latent
    sites, with the Jacobians of their constraints, are the prior. Replicas start at draws from the
    prior: `rx.sample(rx.interop.from_numpyro(model, x, y=y), num_steps=...)`.

    Args:
        model: a function with NumPyro's primitives; latent sites are continuous.
        batch_size: rows of a mini-batch. Rows are the first axis of the arguments that are as long
            as the observed site, or the indices of a plate with a `subsample_size`, which is then
            the default. The likelihood is scaled, not the prior.

    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    ...     numpyro.deterministic("variance", scale**2)
    ...     with numpyro.plate("rows", len(y)):
    ...         numpyro.sample("y", dist.Normal(0.0, scale), obs=y)
    >>> target = from_numpyro(model, jnp.array([1.0, -2.0, 0.5]))
    >>> start = target.start(jax.random.key(0))
    >>> sorted(target.constrain(start)), target.num_rows
    (['scale', 'variance'], 3)
    """
    parsed = _read_model(import_extra("numpyro", "numpyro", "from_numpyro"), model, args, kwargs)
    if batch_size is None:
        batch_size = parsed.subsample_size
    elif parsed.why_whole is not None:
        raise ValueError(
            f"batch_size is {batch_size}, but {parsed.why_whole}; leave batch_size out."
        )

    def log_likelihood(params: Any, rows: Any) -> Array:
        return parsed.row_log_likelihood(params[_POSITION], rows)

    def log_prior(params: Any) -> Array:
        return parsed.log_prior(params[_POSITION])

    posterior = bayesian(log_likelihood, log_prior, parsed.rows, batch_size=batch_size)
    return replace(
        posterior,
        start=lambda key: {_POSITION: parsed.start(key)},
        constrain=lambda params: parsed.constrain(params[_POSITION]),
        predict=parsed.predict,
        dims=parsed.dims,
        observed=parsed.observed,
    )


def _read_model(numpyro: Any, model: Callable, args: tuple, kwargs: dict) -> Model:
    """Find the sites of a model and its rows; raise if it cannot be sampled."""
    samples, plates = read_sites(numpyro, model, args, kwargs)
    latent = tuple(name for name, site in samples.items() if not site.is_observed)
    check_sites(samples, latent)
    whole = Model(
        numpyro,
        model,
        (args, kwargs),
        latent,
        1,
        dims={name: plates_of(samples[name]) for name in latent},
        observed={name: site.value for name, site in samples.items() if site.value is not None},
    )
    subsampled = {name: sizes for name, sizes in plates.items() if sizes[1] not in (None, sizes[0])}
    if len(subsampled) > 1:
        raise ValueError(
            f"The plates {', '.join(subsampled)} have a subsample_size, but only one of them can "
            "be the rows: leave out that of the others."
        )
    if subsampled:
        ((plate, (size, subsample)),) = subsampled.items()
        for name in latent:
            if plate in samples[name].plates.values():
                raise ValueError(
                    f"The site {name!r} is latent in the plate {plate!r} with a subsample_size, "
                    "and so would have a value for every row. Leave out subsample_size."
                )
        return replace(whole, plate=plate, num_rows=int(size), subsample_size=int(subsample))
    return _with_row_arguments(whole, samples)


def _with_row_arguments(whole: Model, samples: dict[str, Site]) -> Model:
    """Return the model with the arguments that have rows, or the reason why there are none."""
    leaves = jax.tree.leaves(whole.arguments)
    lengths = [leaf.shape[0] if getattr(leaf, "ndim", 0) else None for leaf in leaves]
    num_rows = count_rows(samples, lengths)
    rowed = tuple(i for i, length in enumerate(lengths) if length == num_rows)
    if num_rows is None or not rowed:
        why = "no argument of the model is an array with a row for each observation"
        return replace(whole, num_rows=num_rows or 1, why_whole=why)
    by_row = replace(whole, num_rows=num_rows, row_arguments=rowed)
    local = _local_latent(by_row, samples)
    why = (
        _mixes_rows(by_row)
        if local is None
        else f"the latent site {local!r} has a value for every row"
    )
    return by_row if why is None else replace(whole, num_rows=num_rows, why_whole=why)


def _mixes_rows(model: Model) -> str | None:
    """Return the reason if the density of a row depends on the other rows, for example because the
    model uses their mean, or because another argument has the same length."""

    @jax.jit  # NumPyro does not mind a scale of 0, of one row, where there are no numbers
    def densities(rows: Any) -> Any:
        position, last = model.start(jax.random.key(0)), jax.tree.map(lambda x: x[-1:], rows)
        priors = [model.log_prior(position, part) for part in (last, rows)]
        return priors, [model.row_log_likelihood(position, part)[-1] for part in (last, rows)]

    priors, likelihoods = densities(model.rows)
    if not np.allclose(*priors, rtol=1e-5, atol=1e-5, equal_nan=True):
        return "the prior of its latent sites depends on all rows"
    if not np.allclose(*likelihoods, rtol=1e-2, atol=1e-2, equal_nan=True):
        return "the likelihood of a row depends on other rows"
    return None


def _local_latent(model: Model, samples: dict[str, Site]) -> str | None:
    """Return a latent site whose shape depends on the rows, if there is one."""
    try:
        one_row = jax.eval_shape(model.start, jax.random.key(0))
    except (TypeError, ValueError, IndexError):  # the model needs all rows at once
        return model.latent[0]
    for name in model.latent:
        if one_row[name].shape != samples[name].unconstrained_shape:
            return name
    return None
