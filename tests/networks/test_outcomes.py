"""Weights of rows and classes, one logit, several labels, classes in an order, counts, intervals,
likelihoods of the user's own: each against another way to say the same, or against scipy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
from common import quick_jit
from made_up_metadata import metadata_of
from numpy.testing import assert_allclose, assert_array_equal

import replicax as rx
from replicax.networks.likelihoods import counts, gaussian, student
from replicax.networks.outcomes import Classes, Numbers, coverage, from_json
from replicax.networks.task import Supervised
from replicax.networks.tempered import tempered
from replicax.networks.trained import predictor_of
from replicax.networks.validation import without_held_out
from replicax.run.storage.metadata import read_metadata

BY = "probabilities"
RNG = np.random.default_rng(0)
NUM_ROWS = 30
INPUTS = RNG.normal(size=(NUM_ROWS, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, NUM_ROWS)
SEVERAL = RNG.integers(0, 2, (NUM_ROWS, 4))
COUNTS = RNG.poisson(5, NUM_ROWS)
TIMES = np.arange(NUM_ROWS) % 4  # a row counts so often; 0: not at all


def linear(num_outputs: int) -> rx.nn.Network:
    return rx.nn.Network(
        lambda key: (0.5 * jax.random.normal(key, (3, num_outputs)), {}),
        lambda params, state, inputs, train: (inputs @ params, state),
    )


def start_of(problem: Supervised, num_outputs: int) -> Any:
    """Made-up parameters, those of the likelihood included."""
    params, _ = problem.start_from((RNG.normal(size=(3, num_outputs)), {}))
    return jax.tree.map(
        lambda x: jnp.asarray(x + 0.1 * RNG.normal(size=x.shape), jnp.float32), params
    )


def value_and_gradient(problem: Supervised, params: Any) -> Any:
    """The energy of all rows, and its gradient."""
    energy = lambda params, rows: problem.target.energy(params, {}, rows, None)[0]  # noqa: E731
    return quick_jit(jax.value_and_grad(energy))(params, problem.batches.data)


def assert_close(one: Any, other: Any, rtol: float = 2e-5) -> None:
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=rtol, atol=1e-5), one, other)


TASKS: dict[str, Any] = {
    "classes": (rx.classification, LABELS, 3, {}),
    "ordinal": (rx.classification, LABELS, 1, {"likelihood": "ordinal"}),
    "multilabel": (rx.classification, SEVERAL, 4, {"likelihood": "multilabel"}),
    "gaussian": (rx.regression, INPUTS @ [3.0, 1.0, -2.0], 2, {"noise": "network"}),
    "poisson": (rx.regression, COUNTS, 1, {"likelihood": "poisson"}),
}


def posed(name: str, rows: Any = slice(None), **options: Any) -> tuple[Supervised, int]:
    make, outcomes, num_outputs, own = TASKS[name]
    options = {"batch_size": 5, **own, **options}
    if name in ("gaussian", "poisson"):
        options["standardise"] = (4.0, 2.0)  # the same ones for other rows
    return make(linear(num_outputs), (INPUTS[rows], outcomes[rows]), **options), num_outputs


@pytest.mark.parametrize("name", TASKS)
def test_weights_are_repeated_rows(name: str) -> None:
    weighted, num_outputs = posed(name, sample_weight=2.5 * TIMES)
    repeated, _ = posed(name, np.repeat(np.arange(NUM_ROWS), TIMES))
    params = start_of(weighted, num_outputs)
    found = value_and_gradient(weighted, params)
    assert_close(found, value_and_gradient(repeated, params))
    unweighted, _ = posed(name)
    assert abs(found[0] - value_and_gradient(unweighted, params)[0]) > 1e-3
    total = tempered(posed(name, sample_weight=TIMES, weight_decay=0.1)[0])
    whole = total.target.whole_energy
    assert whole is not None
    assert_allclose(whole((params, {}), total.batches.data), NUM_ROWS * found[0], rtol=1e-5)


def test_scores_of_weighted_rows_are_those_of_repeated_rows() -> None:
    often = np.repeat(np.arange(NUM_ROWS), TIMES)
    logits = jnp.asarray(RNG.normal(size=(2, NUM_ROWS, 3)), jnp.float32)
    outputs = jnp.asarray(RNG.uniform(0.5, 1, (2, NUM_ROWS, 1, 2)), jnp.float32)
    real = RNG.normal(size=(NUM_ROWS, 1))
    of_numbers = Numbers(gaussian(), (3.0,), (2.0,))
    for law, values, targets in ((Classes(3), logits, LABELS), (of_numbers, outputs, real)):
        average = quick_jit(law.average)
        sums = average(values, targets, jnp.ones(2))
        more = average(values[:, often], targets[often], jnp.ones(2))
        weights = TIMES / 1.0
        one = law.metrics(sums, targets, "probabilities", weights)._asdict()
        other = law.metrics(more, targets[often], "probabilities")._asdict()
        one.pop("nll_sum"), other.pop("nll_sum")
        assert_close(one, other)
        score = jax.jit(law.score_average, static_argnums=2)
        assert_close(
            score(sums, targets, BY, jnp.asarray(weights)), score(more, targets[often], BY)
        )


@pytest.mark.parametrize(
    ("given", "by_class"),
    [
        ("balanced", NUM_ROWS / 3 / np.bincount(LABELS)),
        ([1.0, 0.5, 4.0], [1.0, 0.5, 4.0]),
        ({2: 3.0}, [1.0, 1.0, 3.0]),
    ],
)
def test_class_weights_are_the_sample_weights_they_stand_for(given: Any, by_class: Any) -> None:
    weights = np.asarray(by_class)[LABELS]
    found = posed("classes", class_weight=given)[0].batches.data[2]
    assert_allclose(found, posed("classes", sample_weight=weights)[0].batches.data[2], rtol=1e-6)
    assert_allclose(found, weights / weights.mean(), rtol=1e-6)
    own = RNG.uniform(0, 2, NUM_ROWS)
    both = posed("classes", class_weight=given, sample_weight=own)[0].batches.data[2]
    assert_allclose(both, own * weights / np.mean(own * weights), rtol=1e-5)


def test_balanced_classes_weigh_the_same_together() -> None:
    rare = (np.arange(NUM_ROWS) % 10 == 0).astype(int)
    rows = rx.classification(linear(1), (INPUTS, rare), batch_size=5, class_weight="balanced")
    weights = np.asarray(rows.batches.data[2])
    assert_allclose([weights[rare == 0].sum(), weights[rare == 1].sum()], NUM_ROWS / 2, rtol=1e-5)
    several = posed("multilabel", class_weight="balanced")[0].batches.data[2]
    for label in range(4):
        ones = SEVERAL[:, label] == 1
        sums = several[ones, label].sum(), several[~ones, label].sum()
        assert_allclose(sums[0], sums[1], rtol=1e-5)


def test_one_logit_is_two_of_which_the_first_is_0() -> None:
    labels = LABELS % 2
    one = rx.classification(linear(1), (INPUTS, labels), batch_size=5)
    two = rx.classification(linear(2), (INPUTS, labels), batch_size=5)
    params = jnp.asarray(RNG.normal(size=(2, 3, 1)), jnp.float32)
    wide = jnp.concatenate([jnp.zeros_like(params), params], axis=2)
    value, gradient = value_and_gradient(one, params[0])
    wanted, wider = value_and_gradient(two, wide[0])
    assert_close((value, gradient), (wanted, wider[:, 1:]))
    for by in ("probabilities", "logits"):
        found, other = (
            problem.predictor.predict((some, {}), np.ones(2), INPUTS, by=by)  # type: ignore[union-attr]
            for problem, some in ((one, params), (two, wide))
        )
        assert_close(found, other)
        assert found.shape == (NUM_ROWS, 2)
        assert_allclose(np.exp(found).sum(axis=1), 1, rtol=1e-6)
    logits = lambda params, state, inputs: inputs @ params[:, 0]  # noqa: E731  (row,)
    test = rx.Test(logits, INPUTS, labels, 2)
    loss = lambda params, state, batch, key: (jnp.sum(params**2), state)  # noqa: E731
    own = rx.supervised(loss, INPUTS, batch_size=5, test=test).predictor
    assert own is not None
    assert_close(own.predict((params, {}), np.ones(2), INPUTS, by="logits"), found)


def test_several_labels_are_problems_of_their_own() -> None:
    together, _ = posed("multilabel")
    params = jnp.asarray(RNG.normal(size=(2, 3, 4)), jnp.float32)
    value, gradient = value_and_gradient(together, params[0])
    assert together.predictor is not None
    predicted = together.predictor.predict((params, {}), np.ones(2), INPUTS, by=BY)
    assert predicted.shape == (NUM_ROWS, 4, 2)
    values, members = (
        0.0,
        together.predictor.predict((params, {}), np.ones(2), INPUTS, True, "logits"),
    )
    parts, nlls = 0.0, 0.0
    for label in range(4):
        alone = rx.classification(linear(1), (INPUTS, SEVERAL[:, label]), batch_size=5)
        own = params[:, :, label : label + 1]
        energy, pull = value_and_gradient(alone, own[0])
        values += energy
        assert_close(gradient[:, label : label + 1], pull)
        assert alone.predictor is not None
        found = alone.predictor.predict((own, {}), np.ones(2), INPUTS, by=BY)
        assert_close(predicted[:, label], found)
        nlls += rx.predict.nll(found, SEVERAL[:, label])
        parts += rx.predict.uncertainty(members[:, :, label]).epistemic
    assert_allclose(value, values, rtol=1e-5)
    scores = rx.predict.evaluate(predicted, SEVERAL)
    assert scores.nll == pytest.approx(nlls)
    assert scores.accuracy == np.mean((predicted[..., 1] > predicted[..., 0]) == SEVERAL)
    assert_allclose(rx.predict.uncertainty(members).epistemic, parts, atol=1e-6)


def test_classes_in_an_order_have_the_probabilities_of_scipy() -> None:
    problem, _ = posed("ordinal")
    start, _ = problem.start_from((jnp.zeros((3, 1)), {}))
    assert problem.predictor is not None
    level = problem.predictor.outputs(start, {}, INPUTS)
    assert_allclose(np.exp(level), 1 / 3, rtol=1e-5)  # equally probable at the start
    params = {"network": jnp.array([[1.0], [-2.0], [0.5]]), "cuts": jnp.array([0.3, -0.4])}
    first = np.log(0.5) + 0.3  # of three: log odds of 1 / 3, and the distance to those of 2 / 3
    cuts = np.array([first, first + 2 * np.log(2) * np.exp(-0.4)])
    below = scipy.special.expit(cuts - INPUTS @ np.asarray(params["network"]))
    wanted = np.diff(below, axis=1, prepend=0, append=1)
    found = np.exp(problem.predictor.outputs(params, {}, INPUTS))
    assert_allclose(found, wanted, rtol=1e-4)
    far = problem.predictor.outputs(params, {}, 100 * INPUTS)
    assert np.isfinite(far).all()
    value, _ = value_and_gradient(problem, params)
    assert_allclose(value, -np.mean(np.log(wanted[np.arange(NUM_ROWS), LABELS])), rtol=1e-5)
    with pytest.raises(ValueError, match="params lack cuts, .*problem.start_from"):
        problem.predictor.outputs(params["network"], {}, INPUTS)


def test_counts_have_the_law_of_scipy() -> None:
    """Two networks, of weights 1 and 3."""
    problem, _ = posed("poisson")
    params = 0.5 * jnp.asarray(RNG.normal(size=(2, 3, 1)), jnp.float32)
    rate = 4 * np.exp(np.einsum("ri,nio->nro", INPUTS, params))[..., 0]  # 4: standardise
    law, weights = scipy.stats.poisson(rate), np.array([0.25, 0.75])
    value, _ = value_and_gradient(problem, params[1])
    assert_allclose(value, -law.logpmf(COUNTS)[1].mean(), rtol=1e-5)
    predictor: Any = problem.predictor
    found = predictor.predict((params, {}), 4 * weights, INPUTS, by=BY, interval=0.9)
    mean = weights @ rate
    assert_allclose(found.mean, mean, rtol=1e-5)
    assert_allclose(found.sd, np.sqrt(weights @ (rate + (rate - mean) ** 2)), rtol=1e-5)
    for end, level in ((found.low, 0.05), (found.high, 0.95)):
        assert_array_equal(end, np.round(end))
        assert (weights @ law.cdf(end) >= level - 1e-6).all()
        assert (weights @ law.cdf(end - 1) < level + 1e-6).all()


SLOW = pytest.mark.slow
GRID = np.linspace(-1.5, 1.5, 1500)
MIXTURES: dict[str, Any] = {
    "gaussian": (gaussian(), lambda value, scale: RNG.normal(value, scale)),
    "student": (student(3.0), lambda value, scale: value + scale * RNG.standard_t(3, len(value))),
    "poisson": (counts((3.0,)), lambda value, scale: RNG.poisson(3 * np.exp(value))),
}


@pytest.mark.parametrize("name", ["gaussian", pytest.param("student", marks=SLOW), "poisson"])
def test_intervals_of_a_mixture_hold_as_many_targets_as_they_say(name: str) -> None:
    """Targets are drawn from the mixture of three networks; one that is off by a fifth is seen."""
    likelihood, draw = MIXTURES[name]
    law = Numbers(likelihood, (10.0,), (2.0,)) if likelihood.has_noise else Numbers(likelihood)
    values = np.stack([GRID, GRID**2, np.sin(3 * GRID)])
    scales, weights = np.exp(0.5 * values), np.array([1.0, 2.0, 1.0])
    chosen = RNG.choice(3, len(GRID), p=weights / 4), np.arange(len(GRID))
    drawn = draw(values[chosen], scales[chosen])[:, None]
    targets = law.spread[0] * drawn + law.centre[0]
    parts = (values, scales) if likelihood.has_noise else (values,)
    outputs = jnp.asarray(np.stack(parts, -1)[:, :, None], jnp.float32)
    drawn = jnp.asarray(drawn, jnp.float32)
    sums = quick_jit(law.average)(outputs, drawn, jnp.asarray(weights))
    below = np.asarray(sums.below) / 4
    off = Numbers(counts((4.0,))) if name == "poisson" else law
    wrong = quick_jit(off.average)(outputs * 1.2, drawn, jnp.asarray(weights))
    assert abs(below.mean() - 0.5) < 4 / np.sqrt(12 * len(GRID)), "uniform"
    for level in (0.5, 0.95):
        ends = jax.jit(law.combine, static_argnums=(2, 3))(outputs, jnp.asarray(weights), "", level)
        found = law.finished(ends)
        inside = np.mean((found.low <= targets[:, 0]) & (targets[:, 0] <= found.high))
        error = 4 * np.sqrt(level * (1 - level) / len(GRID))
        if name == "poisson":  # whole numbers: at least as many
            assert level - error < inside < level + 0.2
        else:
            assert abs(inside - level) < error
        assert abs(coverage(below, level)[0] - level) < error
    away = coverage(np.asarray(wrong.below) / 4, (0.5, 0.9)) - (0.5, 0.9)
    assert np.abs(away).max() > 0.03


def test_noise_of_the_network_is_found_where_it_depends_on_the_input() -> None:
    """y = 2 x + exp(0.7 x - 1) noise: the maximum of the likelihood, within 4 standard errors."""
    x = RNG.uniform(-1, 1, (2000, 1)).astype(np.float32)
    y = 2 * x[:, 0] + np.exp(0.7 * x[:, 0] - 1) * RNG.normal(size=2000)

    def network(params: Any, inputs: Any) -> Any:
        return jnp.concatenate([inputs, jnp.ones_like(inputs)], 1) @ params.reshape(2, 2)

    plain: Any = {"batch_size": 2000, "standardise": False}
    problem = rx.regression(network, (x, y), noise="network", **plain)
    energy = lambda params: problem.target.energy(params, {}, problem.batches.data, None)[0]  # noqa: E731
    pull = jax.jit(jax.value_and_grad(energy))
    found = scipy.optimize.minimize(
        lambda params: [np.asarray(part, float) for part in pull(jnp.asarray(params, jnp.float32))],
        np.zeros(4),
        jac=True,
    )
    slope, log_slope, level, log_level = found.x
    # Of log noise the information of a row is 2 for the level, and 2 x^2 for the slope.
    assert abs(log_level + 1) < 4 / np.sqrt(2 * 2000)
    assert abs(log_slope - 0.7) < 4 / np.sqrt(2 * 2000 / 3)
    assert abs(slope - 2) < 0.06 and abs(level) < 0.04
    predicted = problem.predictor.predict(  # type: ignore[union-attr]
        (jnp.asarray(found.x[None], jnp.float32), {}), np.ones(1), x, by=BY, interval=0.9
    )
    assert_allclose(predicted.sd, np.exp(0.7 * x[:, 0] - 1), rtol=0.15)
    half = scipy.stats.norm.ppf(0.95) * predicted.sd
    assert_allclose(predicted.high - predicted.low, 2 * half, rtol=1e-4)


def laplace(**others: Any) -> Any:
    return rx.Likelihood(
        "laplace",
        lambda targets, value, scale: -abs(targets - value) / scale - jnp.log(2 * scale),
        mean=lambda value, scale: value,
        has_noise=True,
        **others,
    )


def test_a_likelihood_of_the_users_own() -> None:
    full = laplace(sd=lambda value, scale: 2**0.5 * scale, cdf=jax.scipy.stats.laplace.cdf)
    targets = TASKS["gaussian"][1]
    options: Any = {"batch_size": 5, "noise": 2.0, "standardise": (1.0, 4.0)}
    problem = rx.regression(linear(1), (INPUTS, targets), likelihood=full, **options)
    params = jnp.asarray(RNG.normal(size=(1, 3, 1)), jnp.float32)
    law = scipy.stats.laplace(1 + 4 * (INPUTS @ params[0])[:, 0], 2.0)
    value, _ = value_and_gradient(problem, params[0])
    assert_allclose(value, -law.logpdf(targets).mean() - np.log(4), rtol=1e-5)
    predictor: Any = problem.predictor
    found = predictor.predict((params, {}), np.ones(1), INPUTS, by=BY, interval=0.8)
    wanted = (law.mean(), law.std(), *law.interval(0.8))
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-4, atol=1e-4), tuple(found), wanted)
    outcomes = predictor.likelihood
    assert from_json(outcomes.to_json()).to_json() == outcomes.to_json()
    assert predictor.describe() is None, "a folder cannot store its functions"
    bare = rx.regression(linear(1), (INPUTS, targets), likelihood=laplace(), **options).predictor
    with pytest.raises(ValueError, match='"laplace" has no cdf or no sd, and so no intervals'):
        bare.predict((params, {}), np.ones(1), INPUTS, by=BY, interval=0.8)  # type: ignore[union-attr]
    only: Any = bare.predict((params, {}), np.ones(1), INPUTS, by=BY)  # type: ignore[union-attr]
    assert_allclose(only.mean, found.mean) and np.isnan(only.sd).all()
    standard = outcomes.as_targets("data", targets)
    outputs = predictor.outputs(params[0], {}, INPUTS)[None]
    for one, is_known in ((outcomes, True), (bare.likelihood, False)):  # type: ignore[union-attr]
        metrics = one.metrics(one.average(outputs, standard, jnp.ones(1)), standard, "")
        assert np.isfinite([metrics.nll, metrics.rmse]).all()
        assert np.isfinite([metrics.coverage_90, metrics.sd]).all() == is_known


@pytest.mark.parametrize("name", ["ordinal", "multilabel", "poisson"])
def test_a_folder_predicts_with_the_network_alone(name: str, tmp_path: Any) -> None:
    problem, num_outputs = posed(name)
    metadata_of(predicts=problem.describe()["predicts"]).write(tmp_path)
    stored: Any = read_metadata(tmp_path).resolved.predicts
    again = predictor_of(stored, linear(num_outputs))
    points = jax.tree.map(lambda x: x[None], start_of(problem, num_outputs)), {}
    predictor: Any = problem.predictor
    one, other = (made.predict(points, np.ones(1), INPUTS[:4], by=BY)
                  for made in (predictor, again))  # fmt: skip
    jax.tree.map(assert_array_equal, one, other)


class Weighted:
    """A source of batches of ten rows with weights."""

    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def __iter__(self) -> Any:
        for start in range(0, NUM_ROWS, 10):
            part = slice(start, start + 10)
            yield INPUTS[part], LABELS[part], self.weights[part]


def test_weights_of_a_source_are_used_as_they_are() -> None:
    stream: Any = {"batch_size": 10, "num_rows": NUM_ROWS, "num_classes": 3}
    weights = RNG.uniform(0, 2, NUM_ROWS).astype(np.float32)
    key = jax.random.key(0)
    plain = rx.classification(linear(3), Weighted(weights), **stream).batches.first(key)
    assert_array_equal(plain[2], weights[:10])
    by_class = rx.classification(linear(3), Weighted(weights), class_weight={0: 3.0}, **stream)
    wanted = weights[:10] * np.where(LABELS[:10] == 0, 3.0, 1.0)
    assert_allclose(by_class.batches.first(key)[2], wanted, rtol=1e-6)
    with pytest.raises(ValueError, match="give finite ones of at least 0"):
        rx.classification(linear(3), Weighted(-weights), **stream).batches.first(key)
    with pytest.raises(ValueError, match="third being the weights"):
        rx.classification(linear(3), Weighted(weights), sample_weight=weights, **stream)
    with pytest.raises(ValueError, match="class_weight is 'balanced'; write 3 numbers"):
        rx.classification(linear(3), Weighted(weights), class_weight="balanced", **stream)


def test_rows_that_are_held_out_have_their_weights() -> None:
    weights = RNG.uniform(0, 2, NUM_ROWS)
    problem = without_held_out(posed("classes", sample_weight=weights)[0], 0.2)
    kept, held = problem.batches.data[2], problem.validation
    assert held is not None and len(kept) == 24 and len(held.weights) == 6
    assert_allclose(np.mean(kept), 1, rtol=1e-5)
    everywhere = np.concatenate([kept / kept[0], held.weights])
    assert len(np.unique(everywhere)) == NUM_ROWS


def test_images_have_weights_too() -> None:
    images = np.zeros((6, 4, 4, 1), np.uint8)
    data = rx.data.Dataset(
        "six", images, np.arange(6) % 2, images, np.arange(6) % 2, 2, (0.5,), (0.3,)
    )
    network = rx.nn.mlp(16, 1)
    problem = rx.classification(network, data, batch_size=2, class_weight=[1, 3], augment=True)
    assert_allclose(problem.batches.data[2], np.where(np.arange(6) % 2, 1.5, 0.5))
    inputs, labels, weights = problem.batches.first(jax.random.key(0))
    assert inputs.shape == (2, 4, 4, 1) and weights.shape == labels.shape == (2,)


BAD: dict[str, Any] = {
    "negative": ("classes", {"sample_weight": -np.ones(NUM_ROWS)}, "finite ones of at least 0"),
    "too few": ("classes", {"sample_weight": np.ones(7)}, r"shape \(7,\) for 30 rows"),
    "all zero": ("poisson", {"sample_weight": np.zeros(NUM_ROWS)}, "not all 0"),
    "words": ("classes", {"sample_weight": "balanced"}, "one number for each row"),
    "no such class": ("classes", {"class_weight": {5: 1.0}}, "class_weight is {5: 1.0}; write"),
    "no such word": ("classes", {"class_weight": "even"}, 'write "balanced", 3 numbers'),
    "negative class": ("classes", {"class_weight": [1, -1, 1]}, "numbers of at least 0"),
    "no such kind": ("classes", {"likelihood": "poisson"}, "must be one of categorical, ordinal"),
    "noise of counts": ("poisson", {"noise": "network"}, "has no scale of noise: leave it out"),
    "one column": ("classes", {"likelihood": "multilabel"}, r"of several labels give 0 or 1"),
    "no intervals": ("classes", {}, "Classes have probabilities, and no interval"),
    "level": ("poisson", {}, "interval is 90; give a number such as 0.9"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_gets_a_sentence(case: str) -> None:
    name, options, said = BAD[case]
    with pytest.raises(ValueError, match=said):
        problem, num_outputs = posed(name, **options)
        points = jax.tree.map(lambda x: x[None], start_of(problem, num_outputs)), {}
        level = 90 if case == "level" else 0.9
        problem.predictor.predict(points, np.ones(1), INPUTS, by=BY, interval=level)  # type: ignore[union-attr]


def test_outcomes_of_another_kind_get_a_sentence() -> None:
    for outcomes, said in (
        (COUNTS + 0.5, "whole numbers from 0 on"),
        (COUNTS - 99, "whole numbers"),
    ):
        with pytest.raises(ValueError, match=said):
            rx.regression(linear(1), (INPUTS, outcomes), batch_size=5, likelihood="poisson")
    positive = rx.Likelihood("exponential", lambda y, v: -v - y * jnp.exp(-v), jnp.exp,
                             support="positive")  # fmt: skip
    with pytest.raises(
        ValueError, match='target 0, and the likelihood "exponential" is .* above 0'
    ):
        rx.regression(linear(1), (INPUTS, 0 * COUNTS), batch_size=5, likelihood=positive)
    for labels in (SEVERAL + 1, SEVERAL / 2):
        with pytest.raises(ValueError, match=r"give 0 or 1 for each, \(row, 4\)"):
            rx.classification(linear(4), (INPUTS, labels), batch_size=5, likelihood="multilabel")
    for network, likelihood, said in (
        (linear(3), "ordinal", 'likelihood "ordinal": give it 1 output.'),
        (linear(1), "categorical", "3 classes: give it as many outputs"),
    ):
        problem = rx.classification(network, (INPUTS, LABELS), batch_size=5, likelihood=likelihood)
        with pytest.raises(ValueError, match=said):
            problem.target.energy(start_of(problem, len(said)), {}, problem.batches.data, None)
    with pytest.raises(ValueError, match="log_density must take 2 arguments"):
        rx.Likelihood("odd", lambda value: value, jnp.exp)
    with pytest.raises(ValueError, match="support is 'integers'"):
        rx.Likelihood("odd", lambda y, v: v, jnp.exp, support="integers")
