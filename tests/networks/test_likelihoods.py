"""Sums over networks, of classes and of real numbers, have weights as any average has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit

from replicax.networks.likelihoods import gaussian
from replicax.networks.outcomes import Classes, Numbers, NumberSums

KEY = jax.random.key(0)
LABELS = np.array([0, 2, 1, 1])
VALUES = jax.random.normal(KEY, (4, 2))
OUTPUTS = jax.random.normal(KEY, (3, 4, 2, 2))
CASES = {
    "classes": (Classes(3), jax.random.normal(KEY, (3, 4, 3)), LABELS),
    "gaussian": (Numbers(gaussian(), (1.0, 2.0), (3.0, 0.5)), OUTPUTS.at[..., 1].set(0.7), VALUES),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_of_parts_are_those_of_all(name: str) -> None:
    """Networks of weights 1, 2.5 and 2.5, the last two added together."""
    law, outputs, targets = CASES[name]

    @quick_jit
    def sums() -> tuple:
        whole = law.average(outputs, targets, jnp.array([1.0, 2.5, 2.5]))
        first = law.average(outputs[:1], targets, jnp.ones(1))
        rest = law.average(outputs[1:], targets, jnp.full(2, 2.5))
        return whole, law.merge(law.merge(law.empty(targets), first), rest)

    whole, found = sums()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found, whole)
    assert float(whole.weight) == 6


@pytest.mark.parametrize("name", CASES)
def test_what_is_predicted_of_an_average_is_what_its_networks_combine_to(name: str) -> None:
    law, outputs, targets = CASES[name]
    weights = jnp.array([1.0, 2.5, 2.5])
    average = quick_jit(law.average)(outputs, targets, weights)
    for by in law.ways:
        one = law.predictive(average, targets, by)
        other = law.finished(law.combine(outputs, weights, by))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3), one, other)


@pytest.mark.parametrize("name", CASES)
def test_one_network_is_judged_as_an_average_of_one(name: str) -> None:
    law, outputs, targets = CASES[name]
    alone = law.score(outputs[0], targets)
    sums = quick_jit(law.average)(outputs[:1], targets, jnp.full(1, 3.0))
    for by in law.ways:
        for score, value in law.score_average(sums, targets, by).items():
            assert float(value) == pytest.approx(float(alone[score]), rel=1e-4), (score, by)
            assert getattr(law.metrics(sums, targets, by), score) == pytest.approx(
                float(alone[score]), rel=1e-4
            )


def test_the_calibration_error_is_over_levels_of_5_to_95_percent() -> None:
    """Of two targets, one in intervals of 30 % and more, the other in those of 80 % and more."""
    zeros = np.zeros((2, 1))
    sums = NumberSums(zeros, zeros + 1, np.zeros(2), np.array([[0.36], [0.89]]), 1.0)
    levels = np.arange(5, 96, 5) / 100
    covered = ((levels > 0.299).astype(float) + (levels > 0.799)) / 2
    found = Numbers(gaussian()).metrics(sums, zeros, "probabilities")
    assert found.calibration_error == pytest.approx(np.mean(np.abs(covered - levels)))
    assert (found.coverage_50, found.coverage_90) == (0.5, 1.0)
