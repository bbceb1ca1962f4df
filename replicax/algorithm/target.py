"""The target of sampling: an energy that may be stochastic, its gradient and its noise; and what
is checked of it before a run."""

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm import randomness
from replicax.algorithm.kernel import Evaluated, PyTree
from replicax.errors import check_function, check_kept, explained, show

_DEEPEST = 6  # functions and containers around an array


class Target(NamedTuple):
    """A minus-log-posterior, possibly evaluated with noise.

    All three are called as `(params, batch, key)`. `energy` returns a scalar. `gradient`, where
    given, is used for the moves in place of the gradient of `energy`, with a key of its own.
    `noise(key)`, where given, is drawn for many steps at once and passed in place of `key`:
    the same randomness, faster.

    With `has_state`, a replica has a model state beside its parameters (batch statistics, say),
    and `energy` is called as `(params, model_state, batch, key)` and returns (energy, model_state).
    `prior(params)`, where given, is felt by moves and not seen by swaps. With `tempers_likelihood`
    the energy is minus the log likelihood, `prior` minus the log prior, and a rung of temperature
    tau samples prior x likelihood^(1 / tau): the swap rule is then exact without the prior.
    `whole_energy(params, data)`, where given, is the energy over all `num_rows` rows.
    `row_energies(params, batch, key) -> (row,)`, where given, has the energy as its mean: the
    variance of its differences tells how noisy a comparison of two states is.
    `exchangeable` says which labels may be permuted, see `rx.bayesian`.
    `redraw(key, params, choice_key) -> (params, log_ratio)`, where given, draws some or all
    parameters, as `choice_key` chooses, from the prior, given the others; `log_ratio` is what the
    log prior density of the others gains.
    """

    energy: Callable[..., Any]
    gradient: Callable[..., Any] | None = None
    noise: Callable[[Array], Any] | None = None
    has_state: bool = False
    prior: Callable[[Any], Array] | None = None
    row_energies: Callable[..., Array] | None = None
    tempers_likelihood: bool = False
    whole_energy: Callable[..., Array] | None = None
    num_rows: int | None = None
    exchangeable: Any = None
    redraw: Callable[[Array, Any, Array], tuple[Any, Any]] | None = None

    def evaluate(
        self, params: PyTree, batch: PyTree, noise: Any, temperature: Any = 1.0
    ) -> tuple[Array, Any]:
        """Return energy (NaN where `gradient` is given) and gradient of one replica."""
        if self.gradient is None:
            energy, gradient = jax.value_and_grad(self.energy)(params, batch, noise)
        else:
            energy, gradient = jnp.array(jnp.nan), self.gradient(params, batch, noise)
        return energy, self._with_prior(gradient, params, temperature)

    def evaluate_split(self, params: PyTree, batch: PyTree, noise: Any) -> Evaluated:
        """Return energy and prior of one replica apart, each with its gradient."""
        energy, gradient = jax.value_and_grad(self.energy)(params, batch, noise)
        prior, prior_gradient = self.evaluate_prior(params)
        return Evaluated(energy, gradient, prior.astype(energy.dtype), prior_gradient)

    def evaluate_prior(self, params: PyTree) -> tuple[Array, Any]:
        """Return minus the log prior of one replica and its gradient, 0 where there is none."""
        if self.prior is None:
            return jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)
        return jax.value_and_grad(self.prior)(params)

    def evaluate_state(
        self, params: PyTree, model_state: PyTree, batch: PyTree, noise: Any, temperature: Any = 1.0
    ) -> tuple[Array, Any, Any]:
        """Return energy, gradient and renewed model state of one replica that has one."""
        evaluate = jax.value_and_grad(self.energy, has_aux=True)
        (energy, model_state), gradient = evaluate(params, model_state, batch, noise)
        return energy, self._with_prior(gradient, params, temperature), model_state

    def energy_at(self, point: PyTree, batch: PyTree, noise: Any) -> Array:
        """Return the energy at a point: `params`, or (params, model_state) with `has_state`."""
        if not self.has_state:
            return self.energy(point, batch, noise)
        energy, _ = self.energy(*point, batch, noise)
        return energy

    def _with_prior(self, gradient: PyTree, params: PyTree, temperature: Any) -> Any:
        if self.prior is None:
            return gradient
        prior = jax.grad(self.prior)(params)
        if self.tempers_likelihood:  # exp(-(U + tau V) / tau) is prior x likelihood^(1 / tau)
            prior = jax.tree.map(lambda g: (temperature * g).astype(g.dtype), prior)
        return jax.tree.map(jnp.add, gradient, prior)

    def draw(self, key: Array) -> Any:
        """Draw what is passed in place of `key`: noise, or a key of JAX's default kind."""
        return randomness.ordinary(key) if self.noise is None else self.noise(key)


@dataclass(frozen=True)
class StepEnergy:
    """The target as a kernel sees it in one step: on a mini-batch, at the temperature of a rung.

    Called with `params` it returns (energy, gradient), the prior in the gradient.
    """

    target: Target
    batch: PyTree = None
    noise: Any = None
    temperature: Array | float = 1.0

    def __call__(self, params: PyTree) -> tuple[Array, Any]:
        return self.target.evaluate(params, self.batch, self.noise, self.temperature)

    def split(self, params: PyTree) -> Evaluated:
        """Return energy and prior apart, each with its gradient."""
        return self.target.evaluate_split(params, self.batch, self.noise)


def as_target(target_or_energy: Any) -> Target:
    """Return a `Target` of a target or a function of (params), (params, batch) or all three."""
    if isinstance(target_or_energy, Target):
        target = target_or_energy
        for name in ("noise", "prior"):
            if getattr(target, name) is not None:
                check_function(name, getattr(target, name), "key" if name == "noise" else "params")
        if target.has_state:
            return target
        gradient = target.gradient
        if gradient is not None:
            gradient = _three_arguments(gradient, "gradient")
        return target._replace(energy=_three_arguments(target.energy), gradient=gradient)
    return Target(_three_arguments(target_or_energy))


def _three_arguments(function: Callable, name: str = "energy") -> Callable:
    if not callable(function):
        what = "The target" if name == "energy" else f"The {name} of the target"
        raise ValueError(
            f"{what} is {show(function)}; give a function {name}(params, batch, key), with the "
            "last two optional, or rx.Target(energy, gradient, noise)."
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # no signature, as some built-in functions
        return _Padded(function, 1)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return function
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    # Arguments with values of their own, such as scale=2.0, are neither a batch nor a key.
    filled = takewhile(lambda p: p.default is p.empty or p.default is None, positional)
    count = min(len(list(filled)), 3)
    if count == 0 or required > 3:
        raise ValueError(
            f"{getattr(function, '__name__', function)} takes {required} arguments; it must take "
            "(params), (params, batch) or (params, batch, key)."
        )
    return function if count == 3 else _Padded(function, count)


@dataclass(frozen=True)
class _Padded:
    """A function of the first one or two of (params, batch, key), called with all three."""

    function: Callable
    count: int

    def __call__(self, params: PyTree, batch: PyTree, key: Any) -> Any:
        return self.function(*(params, batch, key)[: self.count])


def takes_batch(target: Target) -> bool:
    """Return whether the energy or its gradient is given the batch."""
    functions = (target.energy, target.gradient)
    return any(f is not None and not (isinstance(f, _Padded) and f.count == 1) for f in functions)


def takes_key(target: Target) -> bool:
    """Return whether the energy is a function of the user's own that is given a key."""
    return not target.tempers_likelihood and not isinstance(target.energy, _Padded)


def check_energy(target: Target, point: PyTree, batch: PyTree, key: Array) -> None:
    """Raise a sentence unless the energy of one replica is a real floating-point scalar."""
    if target.has_state:
        _check_state(target, point, batch, key)
    what = "The loss" if target.has_state else "The energy"
    evaluate = lambda p, b, k: target.energy_at(p, b, target.draw(k))  # noqa: E731
    with _explained(what, target, point, batch):
        traced, energy = jax.make_jaxpr(evaluate, return_shape=True)(point, batch, key)
    _check_scalar(what, energy)
    _check_depends(what, traced.jaxpr)
    if target.gradient is None and not target.has_state:
        with _explained(what, target, point, batch):
            jax.eval_shape(_derivatives(evaluate), point, batch, key)
        check_held(what, target.energy, traced)
    if target.tempers_likelihood and target.prior is not None:
        params = point[0] if target.has_state else point
        _check_scalar("log_prior", jax.eval_shape(target.prior, params))
    if target.gradient is not None and not target.has_state:
        _check_gradient(target, point, batch, key)


def _check_depends(what: str, traced: Any) -> None:
    """Raise if a value is a constant of the program, whatever it is given."""
    made = [part for step in traced.eqns for part in step.outvars]
    if not any(traced.outvars[0] is part for part in (*traced.invars, *made)):
        raise ValueError(f"{what} is the same number for all params; it must depend on them.")


def _derivatives(evaluate: Callable) -> Callable:
    """Return what moves need of an energy: its gradient, for several replicas at once."""

    def two(point: PyTree, batch: PyTree, key: Any) -> Any:
        points = jax.tree.map(
            lambda leaf: jnp.stack([jnp.zeros(leaf.shape, leaf.dtype)] * 2), point
        )
        return jax.vmap(jax.grad(evaluate), (0, None, None))(points, batch, key)

    return two


def _explained(what: str, target: Target, point: PyTree, batch: PyTree) -> Any:
    """Return the context that turns errors of the user's function into sentences."""
    if target.has_state:
        return explained(what, "Does the start belong to this loss and these data?")
    shapes = ", ".join(str(leaf.shape) for leaf in jax.tree.leaves(point)[:4])
    if_none = ""
    if batch is None and takes_batch(target):
        if_none = "it takes a batch, and none is given; write batches=..., or energy(params) alone."
    return explained(what, f"The params have shape {shapes}.", if_none)


def _check_scalar(what: str, value: Any) -> None:
    """Raise a sentence unless the shape of a value is that of a real floating-point scalar."""
    if not hasattr(value, "shape"):
        count = len(jax.tree.leaves(value))
        returned = f"{count} values" if count else "nothing"
        raise ValueError(f"{what} returns {returned}; it must return one scalar.")
    if value.shape != ():
        raise ValueError(
            f"{what} returns shape {value.shape}; it must return a scalar: sum (or average) it "
            "over its axes."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"{what} returns dtype {value.dtype}; it must be a real floating-point number."
        )


def _check_gradient(target: Target, point: PyTree, batch: PyTree, key: Array) -> None:
    """Raise a sentence unless the gradient of the user's own has the shapes of the params."""
    evaluate = lambda p, b, k: target.gradient(p, b, target.draw(k))  # noqa: E731  # type: ignore
    with _explained("The gradient", target, point, batch):
        gradient = jax.eval_shape(evaluate, point, batch, key)
    same = jax.tree.structure(gradient) == jax.tree.structure(point)
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(point))
    if not same or any(one.shape != other.shape for one, other in pairs):
        raise ValueError(
            "The gradient of the target must have the containers and shapes of the params: one "
            "number for each parameter."
        )


def _check_state(target: Target, point: PyTree, batch: PyTree, key: Array) -> None:
    """Raise a sentence unless the loss returns a model state of the shape it was given."""
    params, model_state = point
    with _explained("The loss", target, point, batch):
        returned = jax.eval_shape(
            lambda p, s, b, k: target.energy(p, s, b, target.draw(k)),
            params,
            model_state,
            batch,
            key,
        )
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ValueError(
            "The loss must return (loss, model_state); with nothing to remember, return the "
            "model_state that it was given."
        )
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), s) for s in (model_state, returned[1])]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "The loss returns a model_state of other shapes or dtypes than it was given: "
            f"{shapes[1]} instead of {shapes[0]}."
        )


def held_arrays(traced: Any) -> list[Any]:
    """Return the arrays that a traced function holds, also those of functions that it calls, as
    under `jax.jit`."""
    inner = traced.jaxpr if hasattr(traced, "jaxpr") else traced
    held = [*getattr(traced, "consts", ())]
    for step in inner.eqns:
        held += [part.val for part in step.invars if hasattr(part, "val")]
        for value in step.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                if hasattr(part, "jaxpr") or hasattr(part, "eqns"):
                    held += held_arrays(part)
    return [array for array in held if np.ndim(array)]


def check_held(what: str, function: Callable, traced: Any) -> None:
    """Look at the numbers that a function holds as at rows of batches: those that it can reach, and
    that a traced one has as JAX keeps them."""
    held = [np.asarray(array) for array in held_arrays(traced)]
    for array in _arrays_within(function, _DEEPEST):
        with np.errstate(over="ignore"):
            kept = [x for x in held if x.shape == array.shape and x.dtype.itemsize < 8]
            if any(np.array_equal(array.astype(x.dtype), x, equal_nan=True) for x in kept):
                check_kept(what, [array])


def _arrays_within(value: Any, depth: int) -> Iterator[np.ndarray]:
    """Yield arrays of 64 bits that a function or object can reach by its names."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "iuf" and value.dtype.itemsize == 8 and value.ndim:
            yield value
        return
    for part in _parts(value) if depth else ():
        yield from _arrays_within(part, depth - 1)


def _parts(value: Any) -> Any:
    if isinstance(value, types.FunctionType):
        try:
            used = inspect.getclosurevars(value)
        except ValueError:  # it speaks of a name that has no value yet
            return ()
        held = *used.nonlocals.values(), *used.globals.values()
        return [*held, *(value.__defaults__ or ())]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, types.ModuleType | type):
        return ()
    within = getattr(value, "__dict__", {})
    return [*within.values(), getattr(value, "__wrapped__", None)]
