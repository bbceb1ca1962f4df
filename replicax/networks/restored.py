"""The predictor of a run folder, from the stored shapes, classes and units, and the user's
network."""

from typing import Any

import jax

from replicax.errors import show
from replicax.networks import likelihoods
from replicax.networks.classification import classifier
from replicax.networks.likelihoods import Categorical
from replicax.networks.predictor import Predictor
from replicax.networks.regression import regressor
from replicax.nn.network import Network
from replicax.run import plain


def predictor_of(content: dict[str, Any], network: Any) -> Predictor:
    """Return the predictor that `Predictor.to_json` described, for a network that the user passes
    again."""
    law = likelihoods.from_json(content["likelihood"])
    like = row_of(content)
    if not isinstance(law, Categorical):
        return regressor(network, law, content["noise"], like)
    if not isinstance(network, Network) or law.num_classes is None:
        raise ValueError(f"The network is {show(network)}; give an rx.nn.Network.")
    return classifier(network, law.num_classes, like, content["pixels"])


def row_of(content: dict[str, Any]) -> Any:
    """Return shape and dtype of a row of the inputs, None if they were not known."""
    inputs = content["inputs"]
    if inputs is None:
        return None
    leaves = [
        jax.ShapeDtypeStruct(tuple(shape), dtype)
        for shape, dtype in zip(inputs["shapes"], inputs["dtypes"], strict=True)
    ]
    return plain.rebuild(inputs, leaves)


def num_outputs(content: dict[str, Any]) -> int:
    """Return the number of outputs of the network."""
    law = content["likelihood"]
    if law["kind"] == "categorical":
        return law["num_classes"]
    return len(law["centre"]) * (2 if content["noise"] == "network" else 1)
