"""Regression: densities, the exact posterior of a linear model, and a training."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from made_up_metadata import metadata_of
from numpy.testing import assert_allclose, assert_array_equal

import replicax as rx
from replicax.networks import evaluate
from replicax.networks.likelihoods import gaussian, student
from replicax.networks.outcomes import Numbers, Prediction, coverage, from_json
from replicax.networks.regression import _as_noise
from replicax.networks.report import sections_of
from replicax.networks.train import train
from replicax.networks.trained import num_outputs, predictor_of
from replicax.nn.network import Network, apply_dense, init_dense
from replicax.run.batches import EpochBatches
from replicax.run.storage.metadata import read_metadata

RNG = np.random.default_rng(0)
NOISE, DECAY, NUM_ROWS = 8.0, 0.01, 60


def line(params: Any, inputs: Any) -> Any:
    return inputs @ params


def make_rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Two features and a constant; targets far from 0, with noise of 8."""
    inputs = RNG.normal(size=(count, 3)).astype(np.float32)
    inputs[:, 2] = 1.0
    targets = 500 + inputs @ np.array([30.0, -20.0, 5.0]) + RNG.normal(0, NOISE, count)
    return inputs, targets


DATA, TEST = make_rows(NUM_ROWS), make_rows(400)


def exact_posterior(standardise: bool) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Mean and covariance of the parameters, centre and spread of the targets."""
    inputs, targets = DATA[0].astype(float), DATA[1]
    centre, spread = (targets.mean(), targets.std()) if standardise else (0.0, 1.0)
    sd = NOISE / spread
    precision = inputs.T @ inputs / sd**2 + NUM_ROWS * DECAY * np.eye(3)
    covariance = np.linalg.inv(precision)
    return covariance @ inputs.T @ ((targets - centre) / spread) / sd**2, covariance, centre, spread


@pytest.mark.parametrize("standardise", [True, False])
def test_the_energy_is_that_of_the_exact_posterior(standardise: bool) -> None:
    options: Any = {"weight_decay": DECAY, "prior_in_energy": True}
    problem = rx.regression(
        line, DATA, batch_size=NUM_ROWS, noise=NOISE, standardise=standardise, **options
    )
    assert isinstance(problem.batches, EpochBatches)
    rows = problem.batches.data
    energy = lambda params: NUM_ROWS * problem.target.energy(params, {}, rows, None)[0]  # noqa: E731
    mean, covariance, *_ = exact_posterior(standardise)
    mode = jnp.asarray(mean, jnp.float32)
    gradient, curvature = jax.jit(lambda x: (jax.grad(energy)(x), jax.hessian(energy)(x)))(mode)
    assert_allclose(gradient, 0, atol=0.02 * np.sqrt(NUM_ROWS))
    assert_allclose(curvature, np.linalg.inv(covariance), rtol=1e-3, atol=1e-2)


@pytest.fixture(scope="module")
def exact() -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Draws from the exact posterior as networks, and mean and sd that they must predict."""
    problem = rx.regression(
        line, DATA, batch_size=NUM_ROWS, noise=NOISE, test=TEST, weight_decay=DECAY
    )
    mean, covariance, centre, spread = exact_posterior(True)
    draws = np.random.default_rng(1).multivariate_normal(mean, covariance, 4000)
    inputs = TEST[0].astype(float)
    variance = NOISE**2 + spread**2 * np.einsum("ri,ij,rj->r", inputs, covariance, inputs)
    predicted = centre + spread * inputs @ mean
    return problem, (jnp.asarray(draws, jnp.float32), {}), predicted, np.sqrt(variance)


def test_predictions_are_those_of_the_exact_posterior(exact: Any) -> None:
    problem, networks, mean, sd = exact
    predicted = problem.predictor.predict(networks, np.ones(4000), TEST[0], by="probabilities")
    epistemic = np.sqrt(sd**2 - NOISE**2)
    assert np.all(np.abs(predicted.mean - mean) < 5 * epistemic / np.sqrt(4000))
    found = np.sqrt(predicted.sd**2 - NOISE**2)
    assert_allclose(found, epistemic, rtol=5 / np.sqrt(2 * 4000))
    few = (networks[0][:3], {})
    members = problem.predictor.predict(
        few, np.ones(3), TEST[0][:7], members=True, by="probabilities"
    )
    assert members.mean.shape == members.sd.shape == (3, 7)
    assert_allclose(members.sd, NOISE, rtol=1e-5)


def test_running_sums_judge_as_the_exact_predictive(exact: Any) -> None:
    problem, (draws, _), mean, sd = exact
    test = evaluate.compiled_test(problem)
    sums = test.empty()
    for start in range(0, 4000, 1000):
        sums = test.add(sums, (draws[start : start + 1000], {}))
    law, targets = problem.test.likelihood, problem.test.targets
    found = law.metrics(sums, targets, "probabilities")
    losses = -scipy.stats.norm.logpdf(TEST[1], mean, sd)
    assert found.nll == pytest.approx(losses.mean(), abs=2e-3)
    assert found.nll_sum == pytest.approx(losses.sum(), abs=1)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((TEST[1] - mean) ** 2)), rel=1e-3)
    assert found.sd == pytest.approx(np.sqrt(np.mean(sd**2)), rel=1e-3)
    below = scipy.stats.norm.cdf(TEST[1], mean, sd)
    half, most = coverage(below, (0.5, 0.9))
    assert abs(found.coverage_50 - half) <= 3 / 400 and abs(found.coverage_90 - most) <= 3 / 400
    assert_allclose(law.in_user_unit(targets), TEST[1], rtol=1e-6)
    whole = law.predictive(sums, targets, "probabilities")
    direct = problem.predictor.predict((draws, {}), np.ones(4000), TEST[0], by="probabilities")
    assert_allclose(whole.mean, direct.mean, rtol=1e-5)
    assert_allclose(whole.sd, direct.sd, rtol=1e-4)


@pytest.mark.parametrize(
    ("law", "exact_law"),
    [
        (gaussian(), scipy.stats.norm),
        (student(3.5), scipy.stats.t(3.5)),
    ],
    ids=["gaussian", "student"],
)
def test_densities_are_those_of_scipy(law: Any, exact_law: Any) -> None:
    law = Numbers(law)
    mean, scale = RNG.normal(size=(6, 2)), RNG.uniform(0.5, 2, (6, 2))
    outputs = jnp.asarray(np.stack([mean, scale], axis=-1), jnp.float32)
    targets = mean + scale * np.linspace(-6, 6, 12).reshape(6, 2)
    z = (targets - mean) / scale
    wanted = exact_law.logpdf(z) - np.log(scale)
    both = jax.jit(lambda *given: (law.log_density(*given), law.probability_below(*given)))
    log_density, below = both(outputs, targets)
    assert_allclose(log_density, wanted, rtol=1e-4, atol=1e-5)
    assert_allclose(below, exact_law.cdf(z), rtol=1e-3, atol=1e-6)
    assert_allclose(law._moments(outputs)[1], scale**2 * exact_law.var(), rtol=1e-4)
    assert from_json(law.to_json()).to_json() == law.to_json()


def test_a_mixture_of_two_by_hand() -> None:
    """Weights 1 and 3, added in two parts; a network far away does not underflow."""
    law = Numbers(gaussian(), centre=(10.0,), spread=(2.0,))
    outputs = jnp.array([[[[0.0, 1.0]]], [[[1.0, 0.5]]], [[[5.0, 1.0]]]])
    targets = jnp.array([[0.5]])
    average = jax.jit(law.average)
    weights = jnp.array([1.0, 3.0, 0.0])
    one = average(outputs[:1], targets, weights[:1])
    both = jax.jit(law.merge)(one, average(outputs[1:], targets, weights[1:]))
    pdf = scipy.stats.norm.pdf
    density = (pdf(0.5, 0, 1) + 3 * pdf(0.5, 1, 0.5)) / 4 / 2  # per unit of the targets
    metrics = law.metrics(both, targets, "probabilities")
    assert metrics.nll == pytest.approx(-np.log(density), rel=1e-5)
    scores = jax.jit(law.score_average, static_argnums=2)(both, targets, "probabilities")
    assert float(scores["nll"]) == pytest.approx(-np.log(density), rel=1e-5)
    assert float(scores["rmse"]) == pytest.approx(2 * abs(0.75 - 0.5), rel=1e-5)
    predicted = law.predictive(both, targets, "probabilities")
    variance = (1 + 0 + 3 * (0.25 + 1)) / 4 - 0.75**2
    assert_allclose([predicted.mean[0], predicted.sd[0]], [11.5, 2 * np.sqrt(variance)], rtol=1e-5)
    far = average(outputs[:1], targets + 40, weights[:1])
    assert law.metrics(far, targets + 40, "probabilities").nll > 800


def test_equal_targets_have_a_spread_of_one() -> None:
    """By rounding, the standard deviation of equal numbers may be 1e-12."""
    targets = np.stack([np.full(201, 1e4 + 0.1), np.arange(201.0)], axis=1)
    assert targets[:, 0].std() > 0
    problem = rx.regression(line, (np.ones((201, 1)), targets), batch_size=10)
    assert problem.predictor is not None
    assert_allclose(problem.predictor.likelihood.spread, [1.0, targets[:, 1].std()])  # type: ignore[attr-defined]


def test_coverage_counts_targets_in_central_intervals() -> None:
    assert_allclose(coverage([0.5, 0.26, 0.74, 0.24, 0.01], [0.5, 0.9]), [0.6, 0.8])
    assert_allclose(coverage([0.25, 0.75, 0.2], [0.5]), [2 / 3])  # its ends are in an interval


def test_means_and_scales_by_kind_of_noise() -> None:
    """Two targets of spreads 4 and 2; of learned noise the logarithm is a parameter, from 0 on."""
    values = jnp.array([[1.0, 2.0, -1.0, 0.5]])
    law = Numbers(gaussian(), (4.0, 2.0), (4.0, 2.0))
    of_network = _as_noise("network", law)
    assert of_network.num_outputs == 4
    mean, scale = of_network.parts(values, None)
    assert_allclose(mean, [[1.0, 2.0]])
    assert_allclose(scale, np.exp([[-1.0, 0.5]]), rtol=1e-6)
    learned = _as_noise(None, law)
    params = learned.adds.add({"w": jnp.ones(3)})  # type: ignore[union-attr]
    assert_allclose(params["log_noise"], [0.0, 0.0])
    assert learned.num_outputs == 2 and learned.split(params)[0] == {"w": params["network"]["w"]}
    noisier = {**params, "log_noise": jnp.array([1.0, -2.0])}
    scales = learned.parts(values[:, :2], learned.split(noisier)[1])[1]
    assert_allclose(scales, np.exp([[1.0, -2.0]]), rtol=1e-6)
    by_replica = learned.adds.add({"w": jnp.ones((5, 3))}, num_axes=1)  # type: ignore[union-attr]
    assert by_replica["log_noise"].shape == (5, 2)
    known = _as_noise(2.0, law)  # in the unit of the targets
    assert_allclose(known.parts(values[:, :2], None)[1], [[0.5, 1.0]], rtol=1e-6)
    for each in ([2.0, 6.0], (2, 6), np.array([2.0, 6.0])):
        scales = _as_noise(each, law).parts(values[:, :2], None)[1]
        assert_allclose(scales, [[0.5, 3.0]], rtol=1e-6)
    for wrong in ([2.0, 6.0, 1.0], [2.0, 0.0], [2.0, "a"], [], "12"):
        with pytest.raises(ValueError, match="or one for each of the 2 targets"):
            _as_noise(wrong, law)


def test_networks_know_whether_they_are_trained() -> None:
    """The loss is in training, and renews the state; predictions are not."""

    def apply(params: Any, state: Any, inputs: Any, train: bool) -> tuple[Any, Any]:
        return params + 0 * inputs[:, 0] + (1.0 if train else 0.0), state + train

    network = Network(lambda key: (jnp.zeros(()), jnp.zeros(())), apply)
    data = np.zeros((4, 2)), np.array([0.0, 2.0, 0.0, 2.0])
    problem = rx.regression(network, data, batch_size=4, noise=1.0, standardise=False)
    rows = problem.batches.data
    loss, state = problem.target.energy(jnp.zeros(()), jnp.zeros(()), rows, None)
    assert_allclose(loss, 0.5 + np.log(2 * np.pi) / 2, rtol=1e-6)  # predicts 1, the mean
    assert float(state) == 1
    mean = problem.predictor.outputs(jnp.zeros(()), jnp.zeros(()), data[0])[..., 0]
    assert_allclose(mean, np.zeros((4, 1)))


def perceptron() -> Network:
    def init(key: Any) -> tuple[Any, Any]:
        first, last = jax.random.split(key)
        return {"first": init_dense(first, 3, 4), "last": init_dense(last, 4, 1)}, {}

    def apply(params: Any, state: Any, inputs: Any, train: bool) -> tuple[Any, Any]:
        return apply_dense(params["last"], jnp.tanh(apply_dense(params["first"], inputs))), state

    return Network(init, apply)


OPTIONS: dict[str, Any] = {
    "epochs": 30,
    "num_replicas": 2,
    "method": rx.ensemble(learning_rate=0.01),
    "burn_in": 15,
    "progress": False,
}


def test_a_training_with_learned_noise(tmp_path: Path) -> None:
    network = perceptron()
    problem = rx.regression(network, DATA, batch_size=30, test=TEST, weight_decay=1e-3)
    folder = tmp_path / "run"
    run = train(problem, network.init, **OPTIONS, run_dir=folder)
    metrics = run.metrics()
    assert metrics.rmse < 0.6 * TEST[1].std(), "it has learnt something"
    assert_allclose(run.metrics(data=TEST), metrics, rtol=1e-4, atol=1e-6)
    for wrong, said in ((TEST[0], "give a pair"), ((TEST[0], TEST[1][1:]), "equally many rows")):
        with pytest.raises(ValueError, match=said):
            run.metrics(data=wrong)
    noise = np.exp(run.networks.params["log_noise"]) * DATA[1].std()
    assert np.all((noise > 0.5 * NOISE) & (noise < 4 * NOISE)) and noise.shape == (4, 1)
    predicted = run.predict(TEST[0])
    assert_allclose(predicted.mean, run.predictions().mean, rtol=1e-4)
    assert_allclose(predicted.sd, run.predictions().sd, rtol=1e-3)
    assert np.all(predicted.sd >= noise.min() * 0.999)
    assert_allclose(run.labels, TEST[1], rtol=1e-5)
    assert set(run.epochs) >= {"rmse", "nll", "average_rmse_probabilities"}
    assert run.epochs["rmse"].shape == (30, 2)
    last = run.epochs["average_nll_probabilities"][-1]
    assert metrics.nll == pytest.approx(last, rel=1e-5)
    assert rx.load(folder, network).predict(TEST[0]).sd.tolist() == predicted.sd.tolist()  # type: ignore
    loaded: Any = rx.load(folder, problem)
    np.testing.assert_array_equal(loaded.predict(TEST[0]).mean, predicted.mean)
    assert loaded.metrics() == metrics
    (average,) = run.summary()["averages"]
    assert average["coverage_90"] == metrics.coverage_90
    glance, epochs, predictions = sections_of(loaded)
    assert (epochs.title, predictions.title) == ("Epochs", "Predictions of the average")
    assert glance.parts[2].rows[-1][1] == f"{metrics.rmse:.4f}"  # type: ignore[union-attr]
    curve = predictions.parts[0].figure.axes[0].get_lines()[1].get_xydata()  # type: ignore[union-attr]
    assert curve[np.isclose(curve[:, 0], 0.9), 1] == pytest.approx(metrics.coverage_90)
    with pytest.raises(ValueError, match="no classes"):
        run.log_probabilities()
    with pytest.raises(ValueError, match="by is 'logits'; it must be one of probabilities"):
        run.predict(TEST[0], by="logits")


def two(params: Any, inputs: Any) -> Any:
    """Two targets and the log of the noise of each."""
    return inputs @ params


@pytest.mark.parametrize("noise", [NOISE, "learned", "network"])
def test_a_folder_predicts_with_the_network_alone(noise: Any, tmp_path: Path) -> None:
    """Units, noise and shapes come from its plain data, of the right number of outputs."""
    targets = np.stack([DATA[1], 3 * DATA[1] + 7], axis=1)
    law: Any = {"likelihood": "student"} if noise == "learned" else {}
    problem = rx.regression(two, (DATA[0], targets), batch_size=30, noise=noise, **law)
    metadata_of(predicts=problem.describe()["predicts"]).write(tmp_path)
    stored = read_metadata(tmp_path).resolved.predicts
    assert stored is not None
    again, count = predictor_of(stored, two), num_outputs(stored)
    assert count == (4 if noise == "network" else 2)
    points: Any = jnp.asarray(RNG.normal(size=(5, 3, count)), jnp.float32), {}
    if noise == "learned":
        points = {"network": points[0], "log_noise": 0.1 * jnp.arange(10.0).reshape(5, 2)}, {}
    wanted, found = (
        made.predict(points, np.ones(5), TEST[0][:6], by="probabilities")
        for made in (problem.predictor, again)
    )
    assert_array_equal(found.mean, wanted.mean)
    assert_array_equal(found.sd, wanted.sd)
    with pytest.raises(ValueError, match=r"the network takes \(row, 3\)"):
        again.predict(points, np.ones(5), TEST[0][:, :2], by="probabilities")


@pytest.mark.slow
def test_tempered_sghmc_samples_the_exact_posterior_of_a_linear_network() -> None:
    """Mean and sd of weights and of predictions; seed and bounds were set before the first run.

    With some 500 effective draws sds are known to 3 %, and mini-batches heat a little.
    """
    problem = rx.regression(line, DATA, batch_size=20, noise=NOISE, test=TEST, weight_decay=DECAY)
    method = rx.sghmc_pt(learning_rate=0.001, temperature=(1.0, 4.0))
    options: Any = {"method": method, "num_replicas": 3, "epochs": 4000, "burn_in": 400}
    options |= {"keep_averaged": 4000}
    run = train(problem, lambda key: (jax.random.normal(key, (3,)), {}), **options, progress=False)
    mean, covariance, centre, spread = exact_posterior(True)
    draws, sd = np.asarray(run.networks.params, float), np.sqrt(np.diag(covariance))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 0.25 * sd)
    assert_allclose(draws.std(axis=0), sd, rtol=0.15)
    inputs = TEST[0].astype(float)
    epistemic = spread * np.sqrt(np.einsum("ri,ij,rj->r", inputs, covariance, inputs))
    predicted = run.predict(TEST[0])
    assert np.all(np.abs(predicted.mean - centre - spread * inputs @ mean) < 0.3 * epistemic)
    parts = rx.predict.uncertainty(run.predict(TEST[0], members=True))
    assert_allclose(parts.epistemic, epistemic, rtol=0.15)
    assert_allclose(parts.aleatoric, NOISE, rtol=1e-5)
    assert_allclose(predicted.sd, np.sqrt(NOISE**2 + epistemic**2), rtol=0.02)
    exact = scipy.stats.norm(centre + spread * inputs @ mean, np.sqrt(NOISE**2 + epistemic**2))
    wanted = coverage(exact.cdf(TEST[1]), [0.9])
    assert abs(run.metrics().coverage_90 - wanted[0]) < 0.02
    assert np.all(run.verdict_rate > 0.05), "rungs must exchange"


class Rows:
    """A source of batches of ten rows."""

    def __init__(self, targets: np.ndarray = DATA[1]) -> None:
        self.targets = targets

    def __iter__(self) -> Any:
        for start in range(0, NUM_ROWS, 10):
            yield DATA[0][start : start + 10], self.targets[start : start + 10]


def test_a_source_is_standardised_as_one_says() -> None:
    mean, sd = DATA[1].mean(), DATA[1].std()
    stream = {"batch_size": 10, "num_rows": NUM_ROWS, "noise": NOISE}
    problem = rx.regression(line, Rows(), standardise=(mean, sd), test=TEST, **stream)
    whole = rx.regression(line, DATA, batch_size=10, noise=NOISE)
    assert (
        problem.steps_per_epoch == 6 and problem.predictor.likelihood == whole.predictor.likelihood
    )  # type: ignore
    inputs, targets = problem.batches.first(jax.random.key(0))
    assert_array_equal(inputs, DATA[0][:10])
    assert_array_equal(targets, whole.batches.data[1][:10])  # type: ignore
    with pytest.raises(
        ValueError, match=r"write standardise=\(mean, sd\) of the targets, or False"
    ):
        rx.regression(line, Rows(), **stream)
    for wrong in (np.stack([DATA[1]] * 2, 1), DATA[1] * np.nan):
        with pytest.raises(ValueError, match="give 1 finite ones for each row"):
            rx.regression(line, Rows(wrong), standardise=False, **stream).batches.first(
                jax.random.key(0)
            )


def test_moments_that_are_given() -> None:
    given = rx.regression(line, DATA, batch_size=10, standardise=(400.0, 50.0))
    assert_allclose(given.batches.data[1][:, 0], (DATA[1] - 400) / 50, rtol=1e-5)  # type: ignore
    for wrong in ((1.0,), (0.0, 0.0), (1.0, -2.0), ("a", "b"), ((1, 2), (3, 4)), (np.nan, 1.0)):
        with pytest.raises(ValueError, match="standardise"):
            rx.regression(line, DATA, batch_size=10, standardise=wrong)  # type: ignore[arg-type]


def test_standard_deviations_split_into_noise_and_spread() -> None:
    members = Prediction(np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([[1.0, 0.5], [2.0, 0.5]]))
    parts = rx.predict.uncertainty(members, [3.0, 1.0])
    assert_allclose(parts.aleatoric, np.sqrt([0.75 * 1 + 0.25 * 4, 0.25]))
    assert_allclose(parts.epistemic, [np.sqrt(0.75 * 0.25 + 0.25 * 2.25), 0.0])
    assert_allclose(parts.total**2, parts.aleatoric**2 + parts.epistemic**2)
    average = Prediction(np.zeros(3), np.ones(3))
    with pytest.raises(ValueError, match=r"means have shape \(3,\); give those of every network"):
        rx.predict.uncertainty(average)
    with pytest.raises(ValueError, match="real numbers: only those of classes"):
        rx.predict.agreement(average, average)


def test_starts_get_the_noise_wherever_they_come_from() -> None:
    network = perceptron()
    problem = rx.regression(network, DATA, batch_size=30)
    start = network.init(jax.random.key(0))
    for given in (network.init, start, list(start), problem.start_from(start)):
        found = problem.start_from(given)
        params, _ = found(jax.random.key(0)) if callable(found) else found
        assert set(params) == {"network", "log_noise"} and params["log_noise"].shape == (1,)
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), start, start)
    params, _ = problem.start_from(rx.per_replica(both)).tree
    assert params["log_noise"].shape == (2, 1)
    assert rx.regression(network, DATA, batch_size=30, noise=1.0).start_from(start) is start


def test_noise_of_the_network_and_several_targets() -> None:
    targets = np.stack([DATA[1], -3 * DATA[1]], axis=1)
    twice = lambda params, inputs: jnp.concatenate([inputs @ params, 0.1 * inputs @ params], 1)  # noqa: E731
    problem = rx.regression(twice, (DATA[0], targets), batch_size=30, noise="network")
    params = np.full((3, 2), 0.2, np.float32)
    networks = (params[None], {})
    assert problem.predictor is not None
    predicted = problem.predictor.predict(networks, np.ones(1), DATA[0], by="probabilities")
    spread, centre = targets.std(axis=0), targets.mean(axis=0)
    assert_allclose(predicted.mean, centre + spread * (DATA[0] @ params), rtol=1e-4)
    assert_allclose(predicted.sd, spread * np.exp(0.1 * DATA[0] @ params), rtol=1e-4)
    batch = DATA[0], (targets - centre) / spread
    energy, _ = problem.target.energy(params, {}, batch, None)
    laws = scipy.stats.norm(DATA[0] @ params, np.exp(0.1 * DATA[0] @ params))
    assert float(energy) == pytest.approx(-laws.logpdf(batch[1]).sum(axis=1).mean(), rel=1e-4)


@pytest.mark.slow
def test_sampling_at_temperature_one_predicts_as_the_exact_posterior() -> None:
    """SGLD of whole batches leaves each variance divided by 1 - rate x curvature / 2."""
    problem = rx.regression(
        line, DATA, batch_size=NUM_ROWS, noise=NOISE, test=TEST, weight_decay=DECAY
    )
    mean, covariance, centre, spread = exact_posterior(True)
    rate = 0.01
    run = train(
        problem,
        (jnp.asarray(mean, jnp.float32), {}),
        epochs=800,
        num_replicas=20,
        method=rx.sgld(learning_rate=rate),
        burn_in=200,
        keep_averaged=2000,
        progress=False,
    )
    assert len(run.networks.weight) == 1200
    values, vectors = np.linalg.eigh(np.linalg.inv(covariance) / NUM_ROWS)
    widened = vectors / (NUM_ROWS * values * (1 - rate * values / 2)) @ vectors.T
    inputs = TEST[0].astype(float)
    epistemic = spread * np.sqrt(np.einsum("ri,ij,rj->r", inputs, widened, inputs))
    predicted = run.predict(TEST[0])
    assert np.abs((predicted.mean - centre - spread * inputs @ mean) / epistemic).max() < 0.3
    found = np.sqrt(predicted.sd**2 - NOISE**2)
    assert_allclose(np.mean(found / epistemic), 1, atol=0.1)
    assert set(run.plot()) == {"epochs", "predictions"}
