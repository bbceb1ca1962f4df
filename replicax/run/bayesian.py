"""`bayesian`: a posterior whose likelihood, prior and rows are known apart."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.spread import share_rows
from replicax.algorithm.target import Target
from replicax.errors import check_function, explained
from replicax.run.batches import ArrayBatches, as_rows, sum_in_pieces
from replicax.run.prior_draws import PriorDraws, check_draws
from replicax.run.priors import Priors
from replicax.run.rows import (
    ArrayRows,
    Elsewhere,
    Rows,
    as_dask_rows,
    as_source_rows,
    is_dask,
)
from replicax.run.shown import Shown
from replicax.run.sources import SourceBatches, as_source, is_source
from replicax.run.task import Task

IN_MEMORY = "bayesian, arrays"  # the kind of rows that a ladder can see
_PIECE_ROWS = 4096  # rows whose likelihoods are evaluated at once


@dataclass(frozen=True)
class Bayesian(Task):
    """A posterior for `rx.sample`; `rx.bayesian` returns one."""

    batches: ArrayBatches | SourceBatches | Elsewhere
    log_likelihood: Callable[[Any, Any], Array]
    start: Callable[[Array], Any] | None = None  # a draw from the prior, where replicas start
    # From models of other libraries:
    constrain: Callable[[Any], Any] | None = None  # params -> the values that draws show
    predict: Callable[..., Any] | None = None  # see `Posterior.predictive`
    dims: Any = None  # names of the axes of values, by name
    observed: Any = None  # observed values, by name

    @property
    def num_rows(self) -> int:
        return self.batches.num_rows

    @property
    def rows(self) -> Rows:
        """All rows, wherever they are, for sweeps."""
        if isinstance(self.batches, Elsewhere):
            return self.batches.rows
        if isinstance(self.batches, SourceBatches):
            return as_source_rows(self.batches.source, self.num_rows)
        return ArrayRows(jax.tree.map(np.asarray, self.batches.data))

    @property
    def block_rows(self) -> int | None:
        """How many rows are read at once, at most, if the user said so."""
        if isinstance(self.batches, Elsewhere) or self.batches.has_all_rows:
            return None
        return self.batches.batch_size

    @property
    def streams(self) -> bool:
        """Whether only sweeps reach the rows."""
        return isinstance(self.batches, Elsewhere)

    def part(self, rows: Any) -> "Bayesian":
        """Return the posterior of some of the rows, in memory."""
        prior = self.target.prior
        assert prior is not None
        part = bayesian(self.log_likelihood, lambda params: -prior(params), rows)
        more = {"exchangeable": self.target.exchangeable, "redraw": self.target.redraw}
        return replace(part, target=part.target._replace(**more), start=self.start)

    def start_from(self, start: Any) -> Any:
        return self.start if start is None else start

    def pointwise(self, draws: Any) -> np.ndarray:
        """Return the log likelihood of every row under every draw, (chain, draw, row).

        `draws` are those of a `Posterior`, leading axes (chain, draw), as they were sampled.
        """
        data = self.batches.data
        if data is None:
            raise ValueError(
                "pointwise needs rows in memory, and the data are a source: take some as arrays, "
                "rx.bayesian(log_likelihood, log_prior, rows).pointwise(draws), a part at a time."
            )
        data = jax.tree.map(jnp.asarray, data)

        @jax.jit
        def of_chain(chain: Any) -> Array:
            return jax.lax.map(lambda params: self.log_likelihood(params, data), chain)

        num_chains = jax.tree.leaves(draws)[0].shape[0]
        chains = (jax.tree.map(lambda leaf, i=i: leaf[i], draws) for i in range(num_chains))
        return np.stack([np.asarray(of_chain(chain)) for chain in chains])


def bayesian(
    log_likelihood: Callable[..., Array],
    log_prior: Any,
    data: Any = None,
    *,
    batch_size: int | None = None,
    num_rows: int | None = None,
    draw_prior: Any = None,
    exchangeable: Any = None,
    order_by: str | None = None,
    constrain: Callable[[Any], Any] | None = None,
    names: Any = None,
) -> Bayesian:
    """Return the posterior prior x likelihood of rows of data, for `rx.sample`.

    Hot rungs sample prior x likelihood^(1 / temperature): the prior stays on every rung, so they
    cannot run away. The library scales mini-batches itself.

    Args:
        log_likelihood: `log_likelihood(params, rows) -> (row,)`, one number for each row; without
            data `log_likelihood(params) -> ()`, one number for all, where observations depend on
            each other or parameters are integrated out.
        log_prior: `log_prior(params) -> ()`; or the containers of params with `rx.priors` for their
            arrays, which have bounds and periods, start the replicas and are drawn from as with
            `draw_prior`. Then `params` of `log_likelihood` are these quantities.
        data: arrays, or a tree of them, with rows on the first axis; or a source, any object whose
            `iter()` gives all rows in blocks, trees of arrays of any number of rows; or a Dask
            array, a tree of them, or a Dask dataframe, as a dict of its columns. Arrays may be
            mapped from a disk (`np.memmap`).
        batch_size: how many rows are seen at once, at most. Draws are exact, of all rows, with it
            and without: a ladder sees them in every step while they are cheap; where they are not,
            or no arrays, or read in blocks of this size, modes are found on some of the rows, and
            sweeps over all of them confirm (`rx.sweeps`). With a method of the paper such as
            `rx.deo`, steps see mini-batches of so many rows, drawn at random, or the blocks of a
            source, which then has this size.
        num_rows: of all the data, for a source; arrays have their own.
        draw_prior: `draw_prior(key) -> params`, a draw from the prior; or the containers of params
            with such a function in the place of each block that is independent of the others,
            `(function, count)` for as many independent rows. Replicas start there unless told
            otherwise, and with all rows hot ones keep moving to such draws, which crosses
            likelihoods with many peaks. It is tested: `log_prior` must be the density of its draws.
        exchangeable: which labels can be permuted, such as those of the components of a mixture:
            the axis along which they are, one number for all params, or one for each array that has
            labels, as `{"mean": 0, "weight": 0}`; for one vector an array of integers (label,
            entry), the places of each label. All of them permute together. Then draws have their
            labels in random order, and jumps have to learn about one order alone.
        order_by: the name of an array of params that has one number for each label, by which draws
            show the labels sorted: planets by their period.
        constrain: `constrain(params) -> values`, what draws, summaries and warnings show: sampled
            numbers in your units, quantities derived from them.
        names: of the entries of the last axis of params, if they are one array, or of an array of
            them, as `{"planets": ("period", "amplitude")}`: draws show an array for each.

    >>> import jax.numpy as jnp, replicax as rx
    >>> posterior = rx.bayesian(
    ...     lambda mean, rows: -((rows - mean) ** 2) / 2,
    ...     lambda mean: -(mean**2) / 200,
    ...     jnp.array([0.9, 1.1, 1.6]),
    ... )
    >>> run = rx.sample(posterior, 0.0, num_steps=3_000, num_replicas=4, num_chains=2)
    >>> bool(abs(run.draws.mean() - 1.2 / (1 + 1 / 300)) < 0.1)
    True
    """
    if data is None:
        log_likelihood, data = _of_one_row(log_likelihood), np.zeros((1, 0), np.float32)
    check_function("log_likelihood", log_likelihood, "params", "rows")
    if not callable(log_prior):
        if draw_prior is not None:
            raise ValueError("rx.priors are drawn from as they are: leave out draw_prior.")
        return _with_priors(log_likelihood, Priors(log_prior, exchangeable), data,
                            batch_size=batch_size, num_rows=num_rows,
                            shown=Shown(constrain, exchangeable, order_by, names))  # fmt: skip
    check_function("log_prior", log_prior, "params")
    batches = _batches(data, batch_size, num_rows)
    num_rows = 0 if isinstance(batches, Elsewhere) else batches.num_rows

    def of_rows(params: Any, batch: Any) -> Array:
        with explained("log_likelihood", "It must return one number for each row."):
            values = jnp.asarray(log_likelihood(params, batch))
        _check_rows(values, jax.tree.leaves(batch)[0].shape[0])
        return values

    def energy(params: Any, batch: Any, key: Any = None) -> Array:
        values = of_rows(params, batch)
        return -(num_rows / values.shape[0]) * jnp.sum(values)

    def row_energies(params: Any, batch: Any, key: Any = None) -> Array:
        return -num_rows * of_rows(params, batch)

    def whole(params: Any, data: Any) -> Array:
        def sum_over(rows: Any) -> Array:
            return jnp.sum(of_rows(params, share_rows(rows)))

        return -sum_in_pieces(sum_over, data, _PIECE_ROWS)

    def prior(params: Any) -> Array:
        with explained("log_prior", "It must return one number."):
            value = jnp.asarray(log_prior(params))
        if value.shape != ():
            raise ValueError(
                f"log_prior returns shape {value.shape}; it must return a scalar: sum it over the "
                "parameters."
            )
        return -value

    target = Target(
        energy,
        prior=prior,
        row_energies=row_energies,
        tempers_likelihood=True,
        whole_energy=None if batches.data is None else whole,
        num_rows=num_rows or None,
        exchangeable=exchangeable,
    )
    shown = Shown(constrain, exchangeable, order_by, names)
    posterior = Bayesian(target, batches, log_likelihood, constrain=shown if shown else None)
    if draw_prior is None:
        return posterior
    draws = PriorDraws(draw_prior)
    check_draws(draws, lambda params: -prior(params))
    return replace(posterior, target=target._replace(redraw=draws.redraw), start=draws)


def _of_one_row(log_likelihood: Callable[[Any], Array]) -> Callable[[Any, Any], Array]:
    """Return the likelihood of all observations as that of a single row."""
    try:
        check_function("log_likelihood", log_likelihood, "params")
    except ValueError as error:
        raise ValueError(f"There are no data, and {error} Or give data=...") from None

    def of_rows(params: Any, rows: Any) -> Array:
        with explained("log_likelihood", "Without data it must return one number for params."):
            value = jnp.asarray(log_likelihood(params))
        if value.shape != ():
            raise ValueError(
                f"log_likelihood returns shape {value.shape}; without data it must return one "
                "number for all observations: sum over them, or give them as data."
            )
        return value[None]

    return of_rows


def _with_priors(
    log_likelihood: Callable[[Any, Any], Array],
    priors: Priors,
    data: Any,
    shown: Shown,
    **options: Any,
) -> Bayesian:
    """Return the posterior of the standard normal numbers of which priors are functions."""

    def of_rows(params: Any, rows: Any) -> Array:
        return log_likelihood(priors.values(params), rows)

    posterior = bayesian(of_rows, priors.log_density, data, exchangeable=priors.exchangeable,
                         **options)  # fmt: skip
    return replace(
        posterior,
        target=posterior.target._replace(redraw=priors.redraw),
        start=priors.start,
        constrain=lambda params: shown(priors.values(params)),
    )


def _check_rows(values: Array, count: int) -> None:
    """Raise unless the log likelihood returned one real number for each of the rows."""
    if not jnp.issubdtype(values.dtype, jnp.floating):
        raise ValueError(
            f"log_likelihood returns dtype {values.dtype}; it must return real floating-point "
            "numbers."
        )
    if values.shape != (count,):
        raise ValueError(
            f"log_likelihood returns shape {values.shape} for {count} rows; it must return one "
            f"number for each row, shape ({count},): do not sum over the rows."
        )


def _batches(data: Any, batch_size: Any, num_rows: Any) -> ArrayBatches | SourceBatches | Elsewhere:
    if is_dask(data):
        if batch_size is not None or num_rows is not None:
            raise ValueError(
                "data is of Dask, whose partitions are evaluated where they are, all rows of them: "
                "leave out batch_size and num_rows."
            )
        return Elsewhere(as_dask_rows(data))
    if is_source(data, num_rows):
        if batch_size is None:
            return Elsewhere(as_source_rows(data, num_rows))
        return as_source(data, batch_size, num_rows, judges=True)
    return replace(as_rows(data, batch_size, "data", _where_it_is), kind=IN_MEMORY)


def _where_it_is(leaf: Any) -> Any:
    """Return an array without a copy, also one that is mapped from a disk."""
    return leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
