"""Replica exchange (parallel tempering) for posteriors that are evaluated on mini-batches.

`sample` and `train` are the two calls most people make; the modules (`kernels`, `schedule`, `swap`,
`targets`, `theory`, ...) hold the parts for people who build their own sampler.
"""

import importlib
from typing import TYPE_CHECKING

from replicax.version import __version__ as __version__

if TYPE_CHECKING:
    from replicax import algorithm as algorithm
    from replicax import callbacks as callbacks
    from replicax import data as data
    from replicax import interop as interop
    from replicax import nn as nn
    from replicax import targets as targets
    from replicax import theory as theory
    from replicax import torch as torch
    from replicax.algorithm import kernels as kernels
    from replicax.algorithm import schedule as schedule
    from replicax.algorithm import swap as swap
    from replicax.algorithm.target import Target as Target
    from replicax.algorithm.tuning import Gain as Gain
    from replicax.api import load as load
    from replicax.api import resume as resume
    from replicax.api import sample as sample
    from replicax.networks import predict as predict
    from replicax.networks.classification import classification as classification
    from replicax.networks.frozen import freeze as freeze
    from replicax.networks.last_layer import last_layer as last_layer
    from replicax.networks.likelihoods import Likelihood as Likelihood
    from replicax.networks.regression import regression as regression
    from replicax.networks.task import Test as Test
    from replicax.networks.task import supervised as supervised
    from replicax.networks.train import train as train
    from replicax.networks.trained import Trained as Trained
    from replicax.results import diagnostics as diagnostics
    from replicax.results.posterior import Posterior as Posterior
    from replicax.run import priors as priors
    from replicax.run.bayesian import bayesian as bayesian
    from replicax.run.initial import per_replica as per_replica
    from replicax.run.methods import Method as Method
    from replicax.run.methods import cyc_sghmc as cyc_sghmc
    from replicax.run.methods import cyc_swag as cyc_swag
    from replicax.run.methods import deep_ensemble as deep_ensemble
    from replicax.run.methods import deo as deo
    from replicax.run.methods import deo_star as deo_star
    from replicax.run.methods import ensemble as ensemble
    from replicax.run.methods import ensemble_then_sample as ensemble_then_sample
    from replicax.run.methods import posterior as posterior
    from replicax.run.methods import pretrain as pretrain
    from replicax.run.methods import sghmc_pt as sghmc_pt
    from replicax.run.methods import sgld as sgld
    from replicax.run.methods import sweeps as sweeps
    from replicax.run.processes import connect as connect

# Where each public module and name lives.
_MODULES = (
    "algorithm algorithm.kernels algorithm.schedule algorithm.swap callbacks data interop "
    "networks.predict nn results.diagnostics run.priors targets theory torch"
)
_NAMES = {
    "algorithm.target": "Target",
    "algorithm.tuning": "Gain",
    "api": "load resume sample",
    "networks.likelihoods": "Likelihood",
    "networks.classification": "classification",
    "networks.frozen": "freeze",
    "networks.last_layer": "last_layer",
    "networks.regression": "regression",
    "networks.task": "Test supervised",
    "networks.train": "train",
    "networks.trained": "Trained",
    "results.posterior": "Posterior",
    "run.bayesian": "bayesian",
    "run.initial": "per_replica",
    "run.methods": "Method cyc_sghmc cyc_swag deep_ensemble deo deo_star ensemble "
    "ensemble_then_sample posterior pretrain sghmc_pt sgld sweeps",
    "run.processes": "connect",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
_PLACE_OF = {module.rpartition(".")[2]: module for module in _MODULES.split()}


def __getattr__(name: str):
    """Import a module when a name of it is first used: `import replicax` alone loads no JAX."""
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f"replicax.{_MODULE_OF[name]}"), name)
    elif name in _PLACE_OF:
        value = importlib.import_module(f"replicax.{_PLACE_OF[name]}")
    else:
        raise AttributeError(f"module 'replicax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_MODULE_OF, *_PLACE_OF, "__version__"])
