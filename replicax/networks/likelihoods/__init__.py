"""Likelihoods of targets given the outputs of networks, and averages over networks."""

from typing import Any

from replicax.networks.likelihoods.classes import Categorical as Categorical
from replicax.networks.likelihoods.likelihood import Likelihood as Likelihood
from replicax.networks.likelihoods.likelihood import Score as Score
from replicax.networks.likelihoods.real import Gaussian as Gaussian
from replicax.networks.likelihoods.real import Mixture as Mixture
from replicax.networks.likelihoods.real import Prediction as Prediction
from replicax.networks.likelihoods.real import Student as Student


def from_json(content: dict[str, Any]) -> Likelihood:
    """Return the likelihood that `Likelihood.to_json` described."""
    kinds = {"categorical": Categorical, "gaussian": Gaussian, "student": Student}
    values = {key: x for key, x in content.items() if key != "kind"}
    values = {key: tuple(x) if isinstance(x, list) else x for key, x in values.items()}
    return kinds[content["kind"]](**values)
