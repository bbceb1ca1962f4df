"""The average of PyTorch networks on labelled data, with the metrics of `rx.predict`."""

import copy
from collections.abc import Iterable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from replicax.errors import show
from replicax.interop.extras import import_extra
from replicax.networks import predict
from replicax.networks.predict import Average, Metrics


class Averaged(NamedTuple):
    """The predictions of an average of networks, and the labels of their inputs."""

    average: Average
    labels: np.ndarray  # (image,)

    def log_probabilities(self, by: str = "probabilities") -> np.ndarray:
        """Return the predictions of the average, (image, class)."""
        if self.average.probabilities.shape[-1] < 2:
            raise ValueError(
                "The models have one output, and one class has probability 1 for every input: "
                "regressions have no probabilities of classes. Give models with an output for each "
                "class."
            )
        if np.any(np.mod(self.labels, 1)):
            raise ValueError(
                f"The labels go from {self.labels.min():.4g} to {self.labels.max():.4g} and are no "
                "numbers of classes: regressions have no probabilities of classes."
            )
        return np.asarray(predict.log_probabilities(self.average, by))  # type: ignore[arg-type]

    def metrics(self, by: str = "probabilities") -> Metrics:
        """Return accuracy, likelihood and calibration of the average."""
        return predict.evaluate(self.log_probabilities(by), self.labels)


def average(
    models_or_checkpoints: Iterable[Any],
    loader: Iterable[Any],
    *,
    model: Any = None,
    weights: Iterable[float] | None = None,
    device: Any = None,
) -> Averaged:
    """Return the average of networks over a loader of (inputs, labels).

    Networks predict logits (image, class), in `eval` mode and without gradients; only one network's
    logits are in memory at a time.

    Args:
        models_or_checkpoints: modules, state dicts, or paths of files with state dicts.
        loader: yields the same (inputs, labels) in every iteration: do not shuffle.
        model: a module; checkpoints are loaded into a copy of it, compiled or not.
        weights: weights of the networks, equal by default.
        device: device of the inputs, by default that of each network's parameters.
    """
    torch = import_extra("torch", "torch", "rx.torch.average")
    networks = list(models_or_checkpoints)
    shares = [1.0] * len(networks) if weights is None else list(weights)
    if not networks or len(shares) != len(networks):
        raise ValueError(
            f"There are {len(networks)} networks and {len(shares)} weights: give at least one "
            "network, and one weight for each."
        )
    total, labels, checksums = None, np.zeros(0), None
    for number, network in enumerate(networks):
        module = _as_module(torch, network, model, number)
        logits, its_labels, its_inputs = _predict(torch, module, loader, device, number)
        if total is None:
            total, labels, checksums = Average.empty(*logits.shape), its_labels, its_inputs
        elif its_inputs != checksums or not np.array_equal(its_labels, labels):
            raise ValueError(
                "The loader yielded other inputs or labels for the second network than for the "
                "first: write shuffle=False, and no random augmentation."
            )
        total = predict.add(total, logits, shares[number])
    assert total is not None
    return Averaged(total, labels)


def _as_module(torch: ModuleType, network: Any, model: Any, number: int) -> Any:
    """Return a network as a module, checkpoints loaded into a copy of `model`."""
    if isinstance(network, torch.nn.Module):
        return network
    if not isinstance(model, torch.nn.Module):
        raise ValueError(
            f"models_or_checkpoints[{number}] is {show(network)}, not a module; to load state "
            "dicts or their files, give a module: average(..., model=...)."
        )
    if not isinstance(network, dict):
        network = torch.load(network, map_location="cpu", weights_only=True)
    module = copy.deepcopy(model)
    names = {_uncompiled(name): name for name in module.state_dict()}
    try:
        module.load_state_dict({names.get(_uncompiled(x), x): y for x, y in network.items()})
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(
            f"models_or_checkpoints[{number}] does not fit the model: {error}. Give the "
            "state_dict() of a model like it, not of an optimizer or of a whole checkpoint."
        ) from None
    return module


def _uncompiled(name: Any) -> Any:
    """Return the name that a parameter has in a module without `torch.compile`."""
    return name.replace("_orig_mod.", "") if isinstance(name, str) else name


def _predict(
    torch: ModuleType, module: Any, loader: Any, device: Any, number: int
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Return logits and labels of the whole loader, and a checksum of each batch of inputs."""
    place = device or next((param.device for param in module.parameters()), "cpu")
    module = module if device is None else module.to(device)
    was_training, logits, labels, checksums = module.training, [], [], []
    module.eval()
    try:
        with torch.inference_mode():
            for batch in loader:
                if not isinstance(batch, tuple | list) or len(batch) != 2:
                    raise ValueError("The loader must yield pairs (inputs, labels).")
                inputs = batch[0].to(place)
                predicted = module(inputs)
                if predicted.ndim != 2 or len(predicted) != len(batch[1]):
                    raise ValueError(
                        f"models_or_checkpoints[{number}] predicts shape {tuple(predicted.shape)} "
                        f"for {len(batch[1])} labels; give networks with logits (image, class)."
                    )
                logits.append(predicted.float().cpu().numpy())
                labels.append(np.asarray(batch[1].cpu() if hasattr(batch[1], "cpu") else batch[1]))
                checksums.append(float(inputs.double().sum()))
    finally:
        module.train(was_training)
    if not logits:
        raise ValueError("The loader is empty: give at least one batch of (inputs, labels).")
    return np.concatenate(logits), np.concatenate(labels), checksums
