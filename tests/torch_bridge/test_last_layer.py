"""The last layer of a PyTorch module as a posterior, and a module whose trunk JAX holds frozen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import replicax as rx  # noqa: E402

INPUTS = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
LABELS = (INPUTS[:, 0] + INPUTS[:, 1] > 0).astype(int) + (INPUTS[:, 2] > 0.5)


def module() -> "torch.nn.Sequential":
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).eval()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_last_layer_of_a_module_is_sampled_on_its_features() -> None:
    model = module()
    trunk = lambda x: model[:-1](torch.as_tensor(x)).detach().numpy()  # noqa: E731
    head = rx.last_layer(trunk, (INPUTS, LABELS), test=(INPUTS, LABELS))
    np.testing.assert_allclose(head.features(INPUTS), trunk(INPUTS), rtol=1e-6)
    last = {name: x.detach().numpy().T for name, x in model[-1].named_parameters()}
    logits = model(torch.as_tensor(INPUTS)).detach().numpy()
    np.testing.assert_allclose(
        head.predictions(last, INPUTS), jax.nn.log_softmax(logits), atol=1e-5
    )
    run = rx.sample(head, num_steps=300, seed=0, progress=False)
    assert head.metrics(run).accuracy > 0.8 > head.metrics(last).accuracy


def test_features_that_need_gradients_are_refused_with_the_remedy() -> None:
    model = module()
    with pytest.raises(ValueError, match=r"The features are no array: .*detach"):
        rx.last_layer(lambda x: model[:-1](torch.as_tensor(x)), (INPUTS, LABELS))


def test_a_state_dict_is_the_start_of_a_network_whose_trunk_is_frozen() -> None:
    """The architecture is written again in JAX; its parameters have the names of PyTorch."""
    model = module()
    values = {name: jnp.asarray(x.numpy()) for name, x in model.state_dict().items()}

    def network(params: dict, inputs: jax.Array) -> jax.Array:
        x = inputs @ params["0.weight"].T + params["0.bias"]
        x = (x - params["1.running_mean"]) / jnp.sqrt(params["1.running_var"] + 1e-5)
        x = jnp.tanh(x * params["1.weight"] + params["1.bias"])
        return x @ params["3.weight"].T + params["3.bias"]

    params = {name: x for name, x in values.items() if not name.endswith("tracked")}
    head, start = rx.freeze(network, (params, {}), "3")
    assert set(start[0]) == {"3.weight", "3.bias"}
    outputs = head.apply(*start, jnp.asarray(INPUTS), True)[0]
    np.testing.assert_allclose(outputs, model(torch.as_tensor(INPUTS)).detach(), atol=1e-5)
    problem = rx.classification(head, (INPUTS, LABELS), batch_size=40, weight_decay=1e-3)
    options = {"epochs": 3, "num_replicas": 1, "progress": False}
    rx.train(problem, start, method=rx.deep_ensemble(0.1), **options)
