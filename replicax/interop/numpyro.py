"""NumPyro models as `rx.bayesian` posteriors: separate likelihood and prior, rows as mini-batches.

Sampling works on unconstrained numbers, stored as `unconstrained.NAME`; draws are constrained and
named after the sites, including deterministic ones.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.kernel import PyTree
from replicax.errors import is_concrete
from replicax.interop.extras import import_extra
from replicax.run.bayesian import Bayesian, bayesian


class Site(NamedTuple):
    """A sample site, as known before the model is run on numbers."""

    is_observed: bool
    is_discrete: bool
    can_draw: bool
    batch_shape: tuple[int, ...]
    plates: dict[int, str]  # by axis, from the end
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    value: Any  # the observed argument, None if it is not observed directly


def read_sites(
    numpyro: ModuleType, model: Callable, args: tuple, kwargs: dict
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


def _read_site(numpyro: ModuleType, site: dict[str, Any]) -> Site:
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
        not observed and _can_draw(numpyro, fn),
        tuple(fn.batch_shape),
        {frame.dim: frame.name for frame in site["cond_indep_stack"]},
        own,
        shape,
        value if concrete else None,
    )


def _can_draw(numpyro: ModuleType, fn: Any) -> bool:
    """Return whether draws from a distribution have its density: not those of a masked one."""
    if isinstance(fn, numpyro.distributions.MaskedDistribution):
        return False
    inner = getattr(fn, "base_dist", None)
    return inner is None or _can_draw(numpyro, inner)


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


class Block(NamedTuple):
    """Sites that are drawn anew together; of a `plate`, one element of it."""

    sites: tuple[str, ...]
    plate: str | None = None

    def elements(self, site: dict[str, Any], place: Array) -> Array | bool:
        """Return which elements of the batch of a site are drawn, `place` in (0, 1) choosing the
        element of the plate."""
        if self.plate is None or site["name"] not in self.sites:
            return site["name"] in self.sites
        frame = next(frame for frame in site["cond_indep_stack"] if frame.name == self.plate)
        element = jnp.arange(frame.size) == jnp.floor(place * frame.size)
        return element.reshape(-1, *[1] * (-1 - frame.dim))


def blocks_of(samples: dict[str, Site], latent: tuple[str, ...]) -> list[Block]:
    """Return the blocks: all latent sites that can be drawn from, those of one element of a plate,
    and each other site alone; none where no site can be drawn from."""
    sites = tuple(name for name in latent if samples[name].can_draw)
    by_plate: dict[str, tuple[str, ...]] = {}
    for name in sites:
        for plate in samples[name].plates.values():
            by_plate[plate] = (*by_plate.get(plate, ()), name)
    elements = [Block(names, plate) for plate, names in by_plate.items()]
    alone = [Block((name,)) for name in sites if not samples[name].plates]
    at_once = [Block(sites)] if sites and [Block(sites)] != alone else []
    return [*at_once, *elements, *alone]


@dataclass(frozen=True)
class Model:
    """A model with its arguments and the kind of its rows: arguments, indices of a plate, or
    indices of the observed site of the whole model."""

    numpyro: ModuleType
    model: Callable
    arguments: Any  # (args, kwargs)
    latent: tuple[str, ...]
    num_rows: int
    plate: str | None = None  # whose indices are the rows
    subsample_size: int | None = None
    row_arguments: tuple[int, ...] = ()  # leaves of the arguments that have rows
    why_all_rows: str | None = None  # why there can be no mini-batches
    dims: Any = None  # names of plates by site, None for other axes
    observed: Any = None  # values of observed sites
    blocks: Any = ()  # that are drawn anew

    @property
    def rows(self) -> Any:
        """All rows, the data of the posterior."""
        if not self.row_arguments:
            return jnp.arange(self.num_rows)
        leaves = jax.tree.leaves(self.arguments)
        return tuple(jnp.asarray(leaves[number]) for number in self.row_arguments)

    def row_log_likelihood(self, position: dict[str, Array], rows: PyTree) -> Array:
        """Return the log likelihood of every row  (row,); terms without a row are divided among all
        rows."""
        sites = self.trace(position, rows)
        count = jax.tree.leaves(rows)[0].shape[0]
        size = self.num_rows if self._takes_all_rows else count
        total = jnp.zeros(size)
        for site in sites.values():
            if site["type"] != "sample" or not site["is_observed"]:
                continue
            value, axis = self._log_prob(site, size), self.row_axis(site, size)
            if axis is None:
                total = total + jnp.sum(value) / self.num_rows
            else:
                others = tuple(i for i in range(-value.ndim, 0) if i != axis)
                total = total + jnp.sum(value, axis=others)
        return total[rows] if self._takes_all_rows else total

    def log_prior(self, position: dict[str, Array], rows: PyTree = None) -> Array:
        """Return the log density of latent sites, on the scale of the unconstrained numbers."""
        sites = self.trace(position, self.some_rows() if rows is None else rows)
        total = jnp.zeros(())
        for name in self.latent:
            site, moved = sites[name], position[name]
            total = total + jnp.sum(self._log_prob(site, None))
            transform = self.numpyro.distributions.biject_to(site["fn"].support)
            total = total + jnp.sum(transform.log_abs_det_jacobian(moved, site["value"]))
        return total

    def start(self, key: Array) -> dict[str, Array]:
        """Return unconstrained numbers of a draw from the prior."""
        handlers, biject_to = self.numpyro.handlers, self.numpyro.distributions.biject_to
        seeded = handlers.seed(self._using(self.some_rows())[0], key)
        drawn = handlers.substitute(seeded, substitute_fn=self.numpyro.infer.init_to_sample)
        sites = self._run(drawn, self.some_rows())
        return {
            name: jnp.asarray(biject_to(sites[name]["fn"].support).inv(sites[name]["value"]), float)
            for name in self.latent
        }

    def constrain(self, position: dict[str, Array]) -> dict[str, Array]:
        """Return the values of latent and deterministic sites."""
        sites = self.trace(position, self.rows)
        return {
            name: jnp.asarray(site["value"])
            for name, site in sites.items()
            if name in self.latent or site["type"] == "deterministic"
        }

    def trace(self, position: dict[str, Array], rows: PyTree) -> dict[str, Any]:
        """Run the model at unconstrained numbers on some rows, and return its sites."""
        biject_to = self.numpyro.distributions.biject_to

        def value_of(site: dict[str, Any]) -> Any:
            if site["type"] == "sample" and site["name"] in position:
                return biject_to(site["fn"].support)(position[site["name"]])
            return None

        model = self._using(rows)[0]
        return self._run(self.numpyro.handlers.substitute(model, substitute_fn=value_of), rows)

    def redraw(
        self, draw_key: Array, position: dict[str, Array], key: Array
    ) -> tuple[dict[str, Array], Array]:
        """Return the position with a block drawn anew, site by site given those before it, and
        what the log density of all other latent values gains by that.

        Elements of a site are independent of each other given the sites before it, and so a part
        of them can be drawn as well.
        """
        choice_key, place_key = jax.random.split(key)
        choice = jax.random.randint(choice_key, (), 0, len(self.blocks))
        place = jax.random.uniform(place_key)
        drawn = dict(position)

        def is_drawn(site: dict[str, Any]) -> Array:
            parts = [block.elements(site, place) for block in self.blocks]
            return functools.reduce(
                jnp.logical_or, [(choice == i) & part for i, part in enumerate(parts)]
            )

        def value_of(site: dict[str, Any]) -> Any:
            if site["type"] != "sample" or site["name"] not in position:
                return None
            name, fn = site["name"], site["fn"]
            transform, old = self.numpyro.distributions.biject_to(fn.support), position[name]
            if any(name in block.sites for block in self.blocks):
                key = jax.random.fold_in(draw_key, self.latent.index(name))
                new = transform.inv(fn.sample(key, site["kwargs"].get("sample_shape", ())))
                num_own = jnp.ndim(old) - len(site["kwargs"].get("sample_shape", ()))
                num_own -= len(fn.batch_shape)
                chosen = is_drawn(site)
                chosen = chosen.reshape(*chosen.shape, *[1] * num_own)
                drawn[name] = jnp.where(chosen, new, old).astype(old.dtype)
            return transform(drawn[name])

        model = self._using(self.some_rows())[0]
        handlers = self.numpyro.handlers
        after = self._run(handlers.substitute(model, substitute_fn=value_of), self.some_rows())
        before = self.trace(position, self.some_rows())
        gains = [
            self._log_others(after[name], drawn[name], is_drawn(after[name]))
            - self._log_others(before[name], position[name], is_drawn(before[name]))
            for name in self.latent
        ]
        return drawn, functools.reduce(jnp.add, gains)

    def _log_others(self, site: dict[str, Any], moved: Array, is_drawn: Array) -> Array:
        """Return the log density of a site beside that of its elements that were drawn."""
        transform = self.numpyro.distributions.biject_to(site["fn"].support)
        plain = self._log_prob(site | {"scale": None}, None)
        jacobian = transform.log_abs_det_jacobian(moved, site["value"])
        jacobian = jacobian.reshape(*plain.shape, -1).sum(axis=-1)
        scale = 1.0 if site["scale"] is None else site["scale"]
        own = scale * plain + jacobian
        return jnp.sum(own - jnp.where(is_drawn, plain + jacobian, 0.0))

    def row_axis(self, site: dict[str, Any], size: int) -> int | None:
        """Return the axis of the rows in the log density of a site, from the end; None if none."""
        shape = tuple(site["fn"].batch_shape)
        shape = np.broadcast_shapes(shape, np.shape(site["value"])[: len(shape)]) or shape
        frames = site["cond_indep_stack"]
        if self.plate is not None:
            return next((frame.dim for frame in frames if frame.name == self.plate), None)
        dims = [frame.dim for frame in frames if frame.size == size]
        if dims:
            return dims[-1] if self.row_arguments else min(dims)
        return next((i - len(shape) for i, length in enumerate(shape) if length == size), None)

    @property
    def _takes_all_rows(self) -> bool:
        return self.plate is None and not self.row_arguments

    def some_rows(self) -> Any:
        """Return rows for quantities that do not depend on them: one row, or all if rows have
        latent sites."""
        return self.rows if self._takes_all_rows else jax.tree.map(lambda leaf: leaf[:1], self.rows)

    def _using(self, rows: PyTree) -> tuple[Callable, tuple, dict]:
        """Return the model and its arguments with these rows."""
        leaves, structure = jax.tree.flatten(self.arguments)
        if self.row_arguments:
            for number, leaf in zip(self.row_arguments, rows, strict=True):
                leaves[number] = leaf
        args, kwargs = structure.unflatten(leaves)
        model = self.model
        if self.plate is not None:
            model = _with_indices(self.numpyro, model, self.plate, rows)
        return model, args, kwargs

    def _run(self, model: Callable, rows: PyTree) -> dict[str, Any]:
        _, args, kwargs = self._using(rows)
        return self.numpyro.handlers.trace(model).get_trace(*args, **kwargs)

    def _log_prob(self, site: dict[str, Any], size: int | None) -> Array:
        """Return the log density of a site, without the scale of the plate of rows."""
        value, intermediates = site["value"], site["intermediates"]
        fn = site["fn"]
        log_prob = fn.log_prob(value, intermediates) if intermediates else fn.log_prob(value)
        scale = 1.0 if site["scale"] is None else site["scale"]
        in_plate = any(frame.name == self.plate for frame in site["cond_indep_stack"])
        if size is not None and in_plate:
            scale = scale * size / self.num_rows
        return log_prob * scale


def _with_indices(numpyro: ModuleType, model: Callable, plate: str, indices: Array) -> Callable:
    """Return the model with given indices in a plate, whatever its subsample_size."""

    class WithIndices(numpyro.primitives.Messenger):
        def process_message(self, msg: dict[str, Any]) -> None:
            if msg["type"] == "plate" and msg["name"] == plate:
                msg["value"], msg["args"] = indices, (msg["args"][0], len(indices))

    return WithIndices(model)


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
        batch_size: rows that are seen at once, see `rx.bayesian`. Rows are the first axis of the
            arguments that are as long as the observed site, or the indices of a plate with a
            `subsample_size`, which is then the default. The likelihood is scaled, not the prior.

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
    elif parsed.why_all_rows is not None:
        raise ValueError(
            f"batch_size is {batch_size}, but {parsed.why_all_rows}; leave batch_size out."
        )

    def log_likelihood(params: PyTree, rows: PyTree) -> Array:
        return parsed.row_log_likelihood(params[_POSITION], rows)

    def log_prior(params: PyTree) -> Array:
        return parsed.log_prior(params[_POSITION])

    def redraw(key: Array, params: PyTree, choice_key: Array) -> tuple[Any, Array]:
        position, gain = parsed.redraw(key, params[_POSITION], choice_key)
        return {_POSITION: position}, gain

    posterior = bayesian(log_likelihood, log_prior, parsed.rows, batch_size=batch_size)
    if parsed.blocks:
        target = posterior.target._replace(redraw=redraw)
        posterior = replace(posterior, target=target)
    return replace(
        posterior,
        start=lambda key: {_POSITION: parsed.start(key)},
        constrain=lambda params: parsed.constrain(params[_POSITION]),
        dims=parsed.dims,
        observed=parsed.observed,
    )


def _read_model(numpyro: ModuleType, model: Callable, args: tuple, kwargs: dict) -> Model:
    """Find the sites of a model and its rows; raise if it cannot be sampled."""
    samples, plates = read_sites(numpyro, model, args, kwargs)
    latent = tuple(name for name, site in samples.items() if not site.is_observed)
    check_sites(samples, latent)
    unsplit = Model(
        numpyro,
        model,
        (args, kwargs),
        latent,
        1,
        blocks=blocks_of(samples, latent),
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
        return replace(unsplit, plate=plate, num_rows=int(size), subsample_size=int(subsample))
    return _with_row_arguments(unsplit, samples)


def _with_row_arguments(unsplit: Model, samples: dict[str, Site]) -> Model:
    """Return the model with the arguments that have rows, or the reason why there are none."""
    leaves = jax.tree.leaves(unsplit.arguments)
    lengths = [leaf.shape[0] if getattr(leaf, "ndim", 0) else None for leaf in leaves]
    num_rows = count_rows(samples, lengths)
    rowed = tuple(i for i, length in enumerate(lengths) if length == num_rows)
    if num_rows is None or not rowed:
        why = "no argument of the model is an array with a row for each observation"
        return replace(unsplit, num_rows=num_rows or 1, why_all_rows=why)
    by_row = replace(unsplit, num_rows=num_rows, row_arguments=rowed)
    local = _local_latent(by_row, samples)
    why = (
        _mixes_rows(by_row)
        if local is None
        else f"the latent site {local!r} has a value for every row"
    )
    return by_row if why is None else replace(unsplit, num_rows=num_rows, why_all_rows=why)


def _mixes_rows(model: Model) -> str | None:
    """Return the reason if the density of a row depends on the other rows, for example because the
    model uses their mean, or because another argument has the same length."""

    @jax.jit  # NumPyro does not mind a scale of 0, of one row, where there are no numbers
    def densities(rows: PyTree) -> Any:
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
