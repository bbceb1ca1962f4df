"""Bayesian model averages, metrics of their predictions, calibration and uncertainty.

A posterior predicts with the mean of its networks,

    p(class | image) = sum_n w_n p(class | image, network n) / sum_n w_n,

computed from running sums, so that only one network's logits are in memory at a time:

>>> import jax.numpy as jnp
>>> confident, unsure = jnp.array([[4.0, 0.0]]), jnp.array([[0.0, 1.0]])
>>> total = add(add(Average.empty(num_images=1, num_classes=2), confident), unsure)
>>> round(nll(log_probabilities(total), labels=[0]), 4)
0.4692
>>> round(nll(log_probabilities(total, by="logits"), labels=[0]), 4)
0.2014

Sums are JAX arrays; metrics take log-probabilities (image, class) and are float64 NumPy.
"""

from replicax.networks.predict.averages import Average as Average
from replicax.networks.predict.averages import add as add
from replicax.networks.predict.averages import average as average
from replicax.networks.predict.averages import log_probabilities as log_probabilities
from replicax.networks.predict.averages import merge as merge
from replicax.networks.predict.calibration import Reliability as Reliability
from replicax.networks.predict.calibration import accuracy_interval as accuracy_interval
from replicax.networks.predict.calibration import calibration_error as calibration_error
from replicax.networks.predict.calibration import plot_reliability as plot_reliability
from replicax.networks.predict.calibration import reliability as reliability
from replicax.networks.predict.metrics import Metrics as Metrics
from replicax.networks.predict.metrics import accuracy as accuracy
from replicax.networks.predict.metrics import brier as brier
from replicax.networks.predict.metrics import evaluate as evaluate
from replicax.networks.predict.metrics import nll as nll
from replicax.networks.predict.uncertainty import Uncertainty as Uncertainty
from replicax.networks.predict.uncertainty import agreement as agreement
from replicax.networks.predict.uncertainty import auroc as auroc
from replicax.networks.predict.uncertainty import entropy as entropy
from replicax.networks.predict.uncertainty import mutual_information as mutual_information
from replicax.networks.predict.uncertainty import out_of_distribution as out_of_distribution
from replicax.networks.predict.uncertainty import total_variation as total_variation
from replicax.networks.predict.uncertainty import uncertainty as uncertainty

__all__ = [
    "Average",
    "Metrics",
    "Reliability",
    "Uncertainty",
    "accuracy",
    "accuracy_interval",
    "add",
    "agreement",
    "auroc",
    "average",
    "brier",
    "calibration_error",
    "entropy",
    "evaluate",
    "log_probabilities",
    "merge",
    "mutual_information",
    "nll",
    "out_of_distribution",
    "plot_reliability",
    "reliability",
    "total_variation",
    "uncertainty",
]
