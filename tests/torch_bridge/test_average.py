"""Averages of PyTorch networks have the metrics of `rx.predict`."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import replicax as rx  # noqa: E402


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.Dropout(),
            torch.nn.Linear(8, 3),
        )

    def forward(self, x):
        return self.layers(x)


@pytest.fixture(scope="module")
def case():
    torch.manual_seed(0)
    inputs, labels = torch.randn(50, 4), torch.randint(0, 3, (50,))
    data = torch.utils.data.TensorDataset(inputs, labels)
    return [Classifier() for _ in range(3)], data, torch.utils.data.DataLoader(data, batch_size=16)


def test_metrics_are_those_of_predict(case) -> None:
    models, data, loader = case
    models[1].eval()
    averaged = rx.torch.average(models, loader, weights=[1.0, 2.0, 1.0])
    assert [model.training for model in models] == [True, False, True], "modes come back"
    inputs, labels = data.tensors
    with torch.no_grad():
        logits = np.stack([model.eval()(inputs).numpy() for model in models])
    expected = rx.predict.average(logits, np.array([1.0, 2.0, 1.0]))
    for by in ("probabilities", "logits"):
        log_probs = rx.predict.log_probabilities(expected, by)
        np.testing.assert_allclose(averaged.log_probabilities(by), log_probs, atol=1e-5)
        metrics = rx.predict.evaluate(log_probs, labels.numpy())
        np.testing.assert_allclose(averaged.metrics(by), metrics, rtol=1e-4)


def test_checkpoints_are_loaded_into_a_copy_of_the_model(case, tmp_path) -> None:
    models, _, loader = case
    path = tmp_path / "network.pt"
    torch.save(models[1].state_dict(), path)
    own = Classifier()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    mixed = rx.torch.average([models[0], path, models[2].state_dict()], loader, model=own)
    whole = rx.torch.average(models, loader)
    np.testing.assert_allclose(mixed.log_probabilities(), whole.log_probabilities(), atol=1e-6)
    torch.testing.assert_close(dict(own.state_dict()), before)


def test_checkpoints_of_compiled_models_fit_plain_ones_and_plain_ones_compiled_models(case) -> None:
    models, _, loader = case
    torch.compiler.reset()
    compiled = [torch.compile(model, backend="eager") for model in models]
    part = Classifier()
    part.layers = torch.compile(part.layers, backend="aot_eager")
    whole = rx.torch.average(models, loader).log_probabilities()
    for checkpoints, model in [(compiled, models[0]), (models, compiled[0]), (compiled, part)]:
        saved = [one.state_dict() for one in checkpoints]
        averaged = rx.torch.average(saved, loader, model=model)
        np.testing.assert_allclose(averaged.log_probabilities(), whole, atol=1e-6)
    np.testing.assert_allclose(
        rx.torch.average(compiled, loader).log_probabilities(), whole, atol=1e-6
    )


def test_what_cannot_be_averaged_is_refused(case) -> None:
    models, data, loader = case
    shuffled = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    with pytest.raises(ValueError, match="shuffle=False"):
        rx.torch.average(models, shuffled)
    labels = torch.zeros(4, dtype=torch.long)
    passes = iter([[(torch.zeros(4, 4), labels)], [(torch.ones(4, 4), labels)]])

    class Augmented:
        def __iter__(self):
            return iter(next(passes))

    with pytest.raises(ValueError, match="no random augmentation"):
        rx.torch.average(models[:2], Augmented())
    with pytest.raises(ValueError, match="0 networks"):
        rx.torch.average([], loader)
    with pytest.raises(ValueError, match="3 networks and 1 weights"):
        rx.torch.average(models, loader, weights=[1.0])
    with pytest.raises(ValueError, match=r"models_or_checkpoints\[0\] is .*model="):
        rx.torch.average([models[0].state_dict()], loader)
    with pytest.raises(ValueError, match=r"models_or_checkpoints\[0\] does not fit"):
        rx.torch.average([{"weight": torch.zeros(1)}], loader, model=models[0])
    with pytest.raises(ValueError, match="empty"):
        rx.torch.average(models, [])
    with pytest.raises(ValueError, match="pairs"):
        rx.torch.average(models, [torch.zeros(2, 4)])
