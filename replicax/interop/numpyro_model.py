"""A NumPyro model with its arguments: its densities, starts, draws and predictions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.interop.numpyro_sites import still_observed


@dataclass(frozen=True)
class Model:
    """A model with its arguments and the kind of its rows: arguments, indices of a plate, or
    indices of the observed site of the whole model."""

    numpyro: Any
    model: Callable
    arguments: Any  # (args, kwargs)
    latent: tuple[str, ...]
    num_rows: int
    plate: str | None = None  # whose indices are the rows
    subsample_size: int | None = None
    row_arguments: tuple[int, ...] = ()  # leaves of the arguments that have rows
    why_whole: str | None = None  # why there can be no mini-batches
    dims: Any = None  # names of plates by site, None for other axes
    observed: Any = None  # values of observed sites

    @property
    def rows(self) -> Any:
        """All rows, the data of the posterior."""
        if not self.row_arguments:
            return jnp.arange(self.num_rows)
        leaves = jax.tree.leaves(self.arguments)
        return tuple(jnp.asarray(leaves[number]) for number in self.row_arguments)

    def row_log_likelihood(self, position: dict[str, Array], rows: Any) -> Array:
        """Return the log likelihood of every row  (row,); terms without a row are divided among all
        rows."""
        sites = self.trace(position, rows)
        count = jax.tree.leaves(rows)[0].shape[0]
        size = self.num_rows if self._is_whole else count
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
        return total[rows] if self._is_whole else total

    def log_prior(self, position: dict[str, Array], rows: Any = None) -> Array:
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

    def predict(self, draws: Any, seed: int, args: tuple, kwargs: dict) -> dict[str, np.ndarray]:
        """Draw all other sites of the model given draws (chain, draw, ...); see `Posterior`."""
        observed = []
        if not args and not kwargs:
            args, kwargs = self._without_observed()
            observed = still_observed(self.numpyro, self.model, self.latent, args, kwargs)
        latent = {name: jnp.asarray(draws[name]) for name in self.latent}
        predictive = self.numpyro.infer.Predictive(self.model, latent, batch_ndims=2)
        predicted = predictive(jax.random.key(seed), *args, **kwargs)
        return {
            name: np.asarray(value) for name, value in predicted.items() if name not in observed
        }

    def trace(self, position: dict[str, Array], rows: Any) -> dict[str, Any]:
        """Run the model at unconstrained numbers on some rows, and return its sites."""
        biject_to = self.numpyro.distributions.biject_to

        def value_of(site: dict[str, Any]) -> Any:
            if site["type"] == "sample" and site["name"] in position:
                return biject_to(site["fn"].support)(position[site["name"]])
            return None

        model = self._using(rows)[0]
        return self._run(self.numpyro.handlers.substitute(model, substitute_fn=value_of), rows)

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
    def _is_whole(self) -> bool:
        return self.plate is None and not self.row_arguments

    def some_rows(self) -> Any:
        """Return rows for quantities that do not depend on them: one row, or all if rows have
        latent sites."""
        return self.rows if self._is_whole else jax.tree.map(lambda leaf: leaf[:1], self.rows)

    def _using(self, rows: Any) -> tuple[Callable, tuple, dict]:
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

    def _run(self, model: Callable, rows: Any) -> dict[str, Any]:
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

    def _without_observed(self) -> tuple[tuple, dict]:
        """Return the arguments with None instead of those that were observed."""
        args, kwargs = self.arguments

        def hide(value: Any) -> Any:
            return None if any(value is seen for seen in self.observed.values()) else value

        return tuple(map(hide, args)), {name: hide(value) for name, value in kwargs.items()}


def _with_indices(numpyro: Any, model: Callable, plate: str, indices: Array) -> Callable:
    """Return the model with given indices in a plate, whatever its subsample_size."""

    class WithIndices(numpyro.primitives.Messenger):
        def process_message(self, msg: dict[str, Any]) -> None:
            if msg["type"] == "plate" and msg["name"] == plate:
                msg["value"], msg["args"] = indices, (msg["args"][0], len(indices))

    return WithIndices(model)
