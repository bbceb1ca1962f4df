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

# Where each public name lives; a module maps to itself.
_MODULES = {
    "algorithm": "algorithm",
    "callbacks": "callbacks",
    "data": "data",
    "diagnostics": "results.diagnostics",
    "interop": "interop",
    "kernels": "algorithm.kernels",
    "nn": "nn",
    "predict": "networks.predict",
    "priors": "run.priors",
    "schedule": "algorithm.schedule",
    "swap": "algorithm.swap",
    "targets": "targets",
    "theory": "theory",
    "torch": "torch",
}
_NAMES = {
    "algorithm.target": "Target",
    "algorithm.tuning": "Gain",
    "api": "load resume sample",
    "networks.classification": "classification",
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

# Names of 0.2 that live in their rooms.
_ELSEWHERE = {
    "replicax.algorithm": "Info Ladder Settings State Tuning build_step init ladder",
    "replicax.callbacks": "Progress",
    "replicax.interop": "as_sampling_algorithm",
    "replicax.algorithm.kernels": "Kernel Replica",
    "replicax.networks": "swag",
    "replicax.networks.evaluate": "Epoch",
    "replicax.networks.task": "Supervised",
    "replicax.results": "plots",
    "replicax.run": "batches",
    "replicax.run.bayesian": "Bayesian",
    "replicax.run.records": "Result",
}


def __getattr__(name: str):
    """Import a module when a name of it is first used: `import replicax` alone loads no JAX."""
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f"replicax.{_MODULE_OF[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"replicax.{_MODULES[name]}")
    else:
        raise AttributeError(f"module 'replicax' has no attribute {name!r}{_remedy(name)}")
    globals()[name] = value
    return value


def _remedy(name: str) -> str:
    """Return what to write in place of a name that is elsewhere."""
    if name == "report":
        return ": write rx.load(folder).report()."
    place = next((place for place, names in _ELSEWHERE.items() if name in names.split()), None)
    return "" if place is None else f": write from {place} import {name}."


def __dir__() -> list[str]:
    return sorted([*_MODULE_OF, *_MODULES, "__version__"])
