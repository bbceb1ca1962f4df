"""The predictor of a run folder, from the stored shapes, classes and units, and the user's
network."""

from typing import Any

from replicax.errors import show
from replicax.networks import likelihoods
from replicax.networks.classification import classifier
from replicax.networks.likelihoods import Categorical
from replicax.networks.predictor import Predictor
from replicax.networks.regression import regressor
from replicax.nn.network import Network
from replicax.run import plain
from replicax.run.storage.metadata import Predicts


def predictor_of(predicts: Predicts, network: Any) -> Predictor:
    """Return the predictor that `Predictor.describe` described, for a network that the user passes
    again."""
    law = likelihoods.from_json(predicts.likelihood)
    like = row_of(predicts)
    if not isinstance(law, Categorical):
        return regressor(network, law, predicts.noise, like)
    if not isinstance(network, Network) or law.num_classes is None:
        raise ValueError(f"The network is {show(network)}; give an rx.nn.Network.")
    return classifier(network, law.num_classes, like, predicts.pixels)


def row_of(predicts: Predicts) -> Any:
    """Return shape and dtype of a row of the inputs, None if they were not known."""
    return None if predicts.inputs is None else plain.shapes_of(predicts.inputs)


def num_outputs(predicts: Predicts) -> int:
    """Return the number of outputs of the network."""
    law = predicts.likelihood
    if law["kind"] == "categorical":
        return law["num_classes"]
    return len(law["centre"]) * (2 if predicts.noise == "network" else 1)
