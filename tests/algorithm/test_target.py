"""What a target makes of the functions that it is given: arguments, priors, states, halves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.algorithm import randomness
from replicax.algorithm.target import as_target, takes_batch, takes_key
from replicax.run.initial import with_row_energies

X = jnp.array([1.0, -2.0])
ROWS = jnp.array([[1.0, 0.0], [3.0, 1.0], [0.0, 2.0]])


def square(x: Any) -> Any:
    return jnp.sum(x**2) / 2


@pytest.mark.parametrize(
    ("function", "value", "takes"),
    [
        (lambda x: square(x), 2.5, (False, False)),
        (lambda x, batch: square(x) + batch, 9.5, (True, False)),
        (lambda x, batch, key: square(x) + batch + key, 12.5, (True, True)),
        (lambda x, batch, key, scale=2.0: scale * square(x), 5.0, (True, True)),
        (lambda *all_of_them: square(all_of_them[0]) + len(all_of_them), 5.5, (True, True)),
    ],
    ids=["params", "batch", "key", "a default", "any"],
)
def test_an_energy_may_take_one_two_or_three_arguments(function, value, takes) -> None:
    target = as_target(function)
    assert float(target.energy(X, 7.0, 3.0)) == pytest.approx(value)
    assert (takes_batch(target), takes_key(target)) == takes


def test_a_gradient_of_ones_own_is_used_and_may_take_one_argument() -> None:
    target = as_target(rx.Target(square, gradient=lambda x: 10 * x))
    energy, gradient = target.evaluate(X, None, None)
    assert np.isnan(energy), "an energy would cost another pass"
    np.testing.assert_allclose(gradient, 10 * X)
    energy, gradient = as_target(square).evaluate(X, None, None)
    assert float(energy) == 2.5
    np.testing.assert_allclose(gradient, X)


@pytest.mark.parametrize("tempers", [False, True])
def test_a_prior_is_felt_and_grows_with_the_temperature_where_it_is_not_tempered(tempers) -> None:
    target = as_target(rx.Target(square, prior=lambda x: jnp.sum(x), tempers_likelihood=tempers))
    _, gradient = target.evaluate(X, None, None, 4.0)
    np.testing.assert_allclose(gradient, X + (4.0 if tempers else 1.0))


def test_energy_and_prior_apart_are_those_of_the_target() -> None:
    alone = as_target(square).evaluate_split(X, None, None)
    assert (float(alone.energy), float(alone.prior)) == (2.5, 0.0)
    np.testing.assert_allclose(alone.gradient, X)
    np.testing.assert_array_equal(alone.prior_gradient, jnp.zeros(2))
    both = as_target(rx.Target(square, prior=lambda x: 3 * jnp.sum(x))).evaluate_split(
        X, None, None
    )
    assert float(both.prior) == -3.0
    np.testing.assert_allclose(both.prior_gradient, [3.0, 3.0])


def test_the_energy_at_a_point_with_a_state_is_the_first_that_the_loss_returns() -> None:
    target = rx.Target(lambda x, state, batch, key: (square(x) + state, state + 1), has_state=True)
    assert float(target.energy_at((X, 4.0), None, None)) == 6.5
    energy, gradient, state = target.evaluate_state(X, 4.0, None, None)
    assert (float(energy), float(state)) == (6.5, 5.0)
    np.testing.assert_allclose(gradient, X)


def test_row_energies_are_those_of_batches_of_one_row() -> None:
    target = with_row_energies(as_target(lambda x, rows: jnp.mean(rows @ x)))
    rows = target.row_energies(X, ROWS, None)  # type: ignore[misc]
    np.testing.assert_allclose(rows, [1.0, 1.0, -4.0])


def test_noise_takes_the_place_of_the_key() -> None:
    key = randomness.make_key(3)
    noisy = rx.Target(square, noise=lambda key: jax.random.normal(key))
    assert float(noisy.draw(key)) == float(jax.random.normal(key))
    assert as_target(square).draw(key).dtype == jax.random.key(0).dtype
