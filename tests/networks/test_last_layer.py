"""The last layer of a network as a posterior that is drawn exactly."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import replicax as rx
from replicax.networks.last_layer import LastLayer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(60, 3)).astype(np.float32)
TARGETS = np.stack([FEATURES @ [1.0, -2.0, 0.5] + 3, 10 * FEATURES[:, 0]], 1)
TARGETS = TARGETS + RNG.normal(size=(60, 2)) * [0.5, 2.0]
NEW = RNG.normal(size=(5, 3)).astype(np.float32) * 3
NOISE, SD = 0.8, 0.1


def identity(inputs: Any) -> Any:
    return inputs


class Known:
    """Mean and covariance of the weights of each standardised target, with bias; the same prior."""

    def __init__(self, sd: float = SD, noise_sd: float = NOISE) -> None:
        rows = np.c_[FEATURES, np.ones(60)].astype(float)
        self.spread, self.centre = TARGETS.std(0), TARGETS.mean(0)
        standard = (TARGETS - self.centre) / self.spread
        self.cov, self.mean, self.log_evidence = [], [], 0.0
        for target in range(2):
            noise = noise_sd / self.spread[target]
            cov = np.linalg.inv(rows.T @ rows / noise**2 + np.eye(4) / sd**2)
            self.cov.append(cov)
            self.mean.append(cov @ rows.T @ standard[:, target] / noise**2)
            marginal = sd**2 * rows @ rows.T + noise**2 * np.eye(60)
            law = stats.multivariate_normal(cov=marginal)
            self.log_evidence += law.logpdf(standard[:, target]) - 60 * np.log(self.spread[target])

    def predicted(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.c_[inputs, np.ones(len(inputs))]
        mean = np.stack([rows @ one for one in self.mean], 1) * self.spread + self.centre
        of_mean = np.stack([np.sum(rows @ cov * rows, 1) for cov in self.cov], 1)
        return mean, np.sqrt(of_mean * self.spread**2 + NOISE**2)


@pytest.fixture(scope="module")
def line() -> tuple[LastLayer, Any]:
    head = rx.last_layer(identity, (FEATURES, TARGETS), noise=NOISE, prior_sd=SD)
    return head, rx.sample(head, num_steps=1_500, num_chains=2, seed=1, progress=False)


def test_draws_of_a_linear_head_are_those_of_its_known_posterior(line: Any) -> None:
    (_, run), known = line, Known()
    draws = np.concatenate([run.draws["weight"], run.draws["bias"][:, :, None]], axis=2)
    draws = draws.reshape(-1, 4, 2)
    for target in range(2):
        sd = np.sqrt(np.diag(known.cov[target]))
        off = (draws[:, :, target].mean(0) - known.mean[target]) / sd
        assert np.abs(off).max() < 0.2
        ratio = np.cov(draws[:, :, target].T) / np.outer(sd, sd)
        np.testing.assert_allclose(ratio, known.cov[target] / np.outer(sd, sd), atol=0.2)
    assert run.num_replicas == 1


def test_predictions_average_over_the_draws(line: Any) -> None:
    (head, run), (mean, sd) = line, Known().predicted(NEW)
    got = head.predictions(run, NEW)
    np.testing.assert_allclose(got.mean, mean, atol=0.15)
    np.testing.assert_allclose(got.sd, sd, rtol=0.1)
    far = head.predictions(run, 100 * NEW[:1])
    np.testing.assert_allclose(far.sd, Known().predicted(100 * NEW[:1])[1], rtol=0.2)
    assert (far.sd > 3 * head.predictions(head.best, 100 * NEW[:1]).sd).all(), "the mode has none"
    members = head.predictions(run, NEW, members=True)
    np.testing.assert_allclose(members.mean.mean(0), got.mean, rtol=1e-4)


def test_mode_and_evidence_of_a_linear_head_are_exact(line: Any) -> None:
    (head, _), known = line, Known()
    best = np.concatenate([head.best["weight"], head.best["bias"][None]])
    np.testing.assert_allclose(best.T, known.mean, rtol=1e-3, atol=1e-4)
    assert head.log_evidence == pytest.approx(known.log_evidence, abs=0.01)


def test_the_prior_has_the_largest_evidence_unless_it_is_given() -> None:
    found = rx.last_layer(identity, (FEATURES, TARGETS), noise=8.0).prior_sd
    best = max(np.geomspace(0.1, 3, 200), key=lambda sd: Known(sd, 8.0).log_evidence)
    assert found == pytest.approx(best, rel=0.05)


def test_noise_is_learned_with_the_head() -> None:
    head = rx.last_layer(identity, (FEATURES, TARGETS), test=(FEATURES, TARGETS))
    found = np.exp(head.best["log_noise"]) * TARGETS.std(0)
    np.testing.assert_allclose(found, [0.5, 2.0], rtol=0.3)
    metrics = head.metrics(head.best)
    assert 0.4 < metrics.coverage_50 < 0.6 and 0.8 < metrics.coverage_90 <= 1


def blobs(count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count) % 3
    corner = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 1.0]], np.float32)
    noise = np.random.default_rng(count).normal(size=(count, 4)) * 0.7
    return (corner[labels] + noise).astype(np.float32), labels


NETWORK = rx.nn.mlp(4, 3, hidden=(6, 5))
START = NETWORK.init(jax.random.key(3))


def by_hand(inputs: np.ndarray) -> np.ndarray:
    x = inputs
    for layer in START[0]["layers"][:-1]:
        x = np.maximum(x @ np.asarray(layer["weight"]) + np.asarray(layer["bias"]), 0)
    return x


@pytest.mark.parametrize("layer", [None, "layers.2"])
def test_features_are_the_inputs_of_the_last_layer(layer: str | None) -> None:
    inputs, _ = data = blobs(40)
    head = rx.last_layer(NETWORK, data, START, layer=layer, prior_sd=1.0)
    np.testing.assert_allclose(head.features(inputs), by_hand(inputs), rtol=1e-4, atol=1e-6)
    whole = NETWORK.apply(*START, jnp.asarray(inputs), False)[0]
    own = START[0]["layers"][2]
    given = head.predictions(own, inputs)
    np.testing.assert_allclose(given, jax.nn.log_softmax(whole), atol=1e-5)


def test_weights_of_other_layouts_are_found() -> None:
    """(output, feature), as in Equinox, also of as many features as classes."""

    def apply(params: Any, state: Any, inputs: Any, train: bool) -> tuple[Any, Any]:
        hidden = jnp.tanh(inputs @ params["first"].T)
        return hidden @ params["head"]["weight"].T + params["head"]["bias"], state

    params = {
        "first": jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32),
        "head": {"weight": jnp.asarray(RNG.normal(size=(3, 3)), jnp.float32), "bias": jnp.ones(3)},
    }
    network = rx.nn.Network(lambda key: (params, {}), apply)
    head = rx.last_layer(network, blobs(40), (params, {}), prior_sd=1.0)
    expected = np.tanh(blobs(40)[0] @ np.asarray(params["first"]).T)
    np.testing.assert_allclose(head.features(blobs(40)[0]), expected, atol=1e-5)


def test_a_head_of_classes_has_the_metrics_of_a_training() -> None:
    head = rx.last_layer(NETWORK, blobs(60), START, test=blobs(90))
    expected = rx.predict.evaluate(head.predictions(head.best, blobs(90)[0]), blobs(90)[1])
    assert head.metrics(head.best).nll == pytest.approx(expected.nll, rel=1e-4)
    assert head.metrics(head.best, blobs(90)).accuracy == expected.accuracy > 0.5
    inputs, labels = blobs(60)
    at_mode = head.pointwise(np.zeros((1, 1, 18), np.float32))[0, 0]
    log_probs = head.predictions(head.best, inputs)[np.arange(60), labels]
    np.testing.assert_allclose(at_mode, log_probs, atol=1e-5)


def test_a_run_predicts_from_its_folder(line: Any, tmp_path: Any) -> None:
    head, run = line
    again = rx.load(run.save(tmp_path / "run"), head)
    expected = head.predictions(run, NEW)
    np.testing.assert_allclose(head.predictions(again, NEW).mean, expected.mean, rtol=1e-6)


@pytest.mark.slow
def test_draws_of_two_classes_predict_as_a_grid_does() -> None:
    """Probabilities depend on the differences of weights and biases, N(0, 2 sd^2)."""
    rng, sd = np.random.default_rng(1), 1.5
    x = rng.normal(size=(25, 1)).astype(np.float32)
    y = (rng.random(25) < 1 / (1 + np.exp(-2 * x[:, 0] - 1))).astype(int)
    slope, offset = np.meshgrid(np.linspace(-4, 10, 300), np.linspace(-6, 8, 300), indexing="ij")
    logits = slope[..., None] * x[:, 0] + offset[..., None]
    log_mass = -np.logaddexp(0, np.where(y == 1, -1, 1) * logits).sum(-1)
    log_mass -= (slope**2 + offset**2) / (4 * sd**2)
    mass = np.exp(log_mass - log_mass.max())
    at = np.array([[-6.0], [-1.0], [0.0], [0.5], [4.0]], np.float32)
    wanted = [np.sum(mass / (1 + np.exp(-slope * z - offset))) / mass.sum() for z in at[:, 0]]
    head = rx.last_layer(identity, (x, y), prior_sd=sd)
    run = rx.sample(head, num_steps=4_000, num_chains=4, seed=0, progress=False)
    got = np.exp(head.predictions(run, at))[:, 1]
    np.testing.assert_allclose(got, wanted, atol=0.03)
    mode = np.exp(head.predictions(head.best, at))[:, 1]
    assert mode[0] < wanted[0] - 0.02, "far away the mode is too certain"


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((NETWORK, blobs(9)), {}, r"The start is missing: give the \(params, model_state\)"),
        ((3, blobs(9)), {}, "The network is 3; give an rx.nn.Network"),
        ((NETWORK, blobs(9), START), {"layer": "layers.1"}, "not those of the layer 'layers.1'"),
        ((NETWORK, blobs(9), START), {"layer": "layers"}, "not those of the layer 'layers'"),
        ((NETWORK, blobs(9), START), {"num_classes": 4}, "The 4 outputs of the network are not"),
        ((identity, blobs(9)), {"prior_sd": 0}, "prior_sd is 0; it must be a number above 0"),
        ((identity, (FEATURES, TARGETS)), {"noise": "big"}, "noise is 'big'; give its"),
        ((lambda x: x[0], blobs(9)), {}, r"have shape \(4,\) for 9 rows; return \(row, feature\)"),
        ((lambda x: x / 0 * 0, blobs(9)), {}, "Some features are not finite"),
        ((lambda x: np.ones((len(x), 700)), blobs(9)), {}, "2,103 parameters, and 2,048"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_no_last_layer_is_refused(arguments: Any, options: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        rx.last_layer(*arguments, **options)
