"""Replica exchange (parallel tempering) for posteriors that are evaluated on mini-batches.

`sample` and `train` are the two calls most people make; the modules (`kernels`, `schedule`, `swap`,
`ladder`, `targets`, `theory`, ...) hold the parts for people who build their own sampler.
"""

import importlib
from typing import TYPE_CHECKING

from replicax.version import __version__ as __version__

if TYPE_CHECKING:
    from replicax import callbacks as callbacks
    from replicax import data as data
    from replicax import interop as interop
    from replicax import nn as nn
    from replicax import targets as targets
    from replicax import theory as theory
    from replicax import torch as torch
    from replicax.algorithm import kernels as kernels
    from replicax.algorithm import ladder as ladder
    from replicax.algorithm import schedule as schedule
    from replicax.algorithm import swap as swap
    from replicax.algorithm.kernels import Kernel as Kernel
    from replicax.algorithm.kernels import Replica as Replica
    from replicax.algorithm.ladder import Ladder as Ladder
    from replicax.algorithm.state import Info as Info
    from replicax.algorithm.state import Settings as Settings
    from replicax.algorithm.state import State as State
    from replicax.algorithm.state import init as init
    from replicax.algorithm.step import build_step as build_step
    from replicax.algorithm.target import Target as Target
    from replicax.algorithm.tuning import Gain as Gain
    from replicax.algorithm.tuning import Tuning as Tuning
    from replicax.api import load as load
    from replicax.api import resume as resume
    from replicax.api import sample as sample
    from replicax.interop.blackjax import as_sampling_algorithm as as_sampling_algorithm
    from replicax.networks import predict as predict
    from replicax.networks import swag as swag
    from replicax.networks.classification import classification as classification
    from replicax.networks.evaluate import Epoch as Epoch
    from replicax.networks.problem import Supervised as Supervised
    from replicax.networks.problem import Test as Test
    from replicax.networks.problem import supervised as supervised
    from replicax.networks.regression import regression as regression
    from replicax.networks.train import train as train
    from replicax.networks.trained import Trained as Trained
    from replicax.report_run import report as report
    from replicax.results import diagnostics as diagnostics
    from replicax.results import plots as plots
    from replicax.results.posterior import Posterior as Posterior
    from replicax.run import batches as batches
    from replicax.run.bayesian import Bayesian as Bayesian
    from replicax.run.bayesian import bayesian as bayesian
    from replicax.run.connect import connect as connect
    from replicax.run.methods import Method as Method
    from replicax.run.methods import cyc_sghmc as cyc_sghmc
    from replicax.run.methods import cyc_swag as cyc_swag
    from replicax.run.methods import deo as deo
    from replicax.run.methods import deo_star as deo_star
    from replicax.run.methods import ensemble as ensemble
    from replicax.run.methods import posterior as posterior
    from replicax.run.methods import pretrain as pretrain
    from replicax.run.methods import sghmc_pt as sghmc_pt
    from replicax.run.methods import sgld as sgld
    from replicax.run.per_replica import per_replica as per_replica
    from replicax.run.progress import Progress as Progress
    from replicax.run.records import Result as Result

# Where each public name lives; a module maps to itself.
_MODULES = {
    "batches": "run.batches",
    "callbacks": "callbacks",
    "data": "data",
    "diagnostics": "results.diagnostics",
    "interop": "interop",
    "kernels": "algorithm.kernels",
    "ladder": "algorithm.ladder",
    "nn": "nn",
    "plots": "results.plots",
    "predict": "networks.predict",
    "schedule": "algorithm.schedule",
    "swag": "networks.swag",
    "swap": "algorithm.swap",
    "targets": "targets",
    "theory": "theory",
    "torch": "torch",
}
_NAMES = {
    "algorithm.kernels": "Kernel Replica",
    "algorithm.ladder": "Ladder",
    "algorithm.state": "Info Settings State init",
    "algorithm.step": "build_step",
    "algorithm.target": "Target",
    "algorithm.tuning": "Gain Tuning",
    "api": "load resume sample",
    "interop.blackjax": "as_sampling_algorithm",
    "networks.classification": "classification",
    "networks.evaluate": "Epoch",
    "networks.problem": "Supervised Test supervised",
    "networks.regression": "regression",
    "networks.train": "train",
    "networks.trained": "Trained",
    "report_run": "report",
    "results.posterior": "Posterior",
    "run.bayesian": "Bayesian bayesian",
    "run.methods": "Method cyc_sghmc cyc_swag deo deo_star ensemble posterior pretrain sghmc_pt "
    "sgld",
    "run.records": "Result",
    "run.progress": "Progress",
    "run.per_replica": "per_replica",
    "run.connect": "connect",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str):
    """Import a module when a name of it is first used: `import replicax` alone loads no JAX."""
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f"replicax.{_MODULE_OF[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"replicax.{_MODULES[name]}")
    else:
        raise AttributeError(f"module 'replicax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_MODULE_OF, *_MODULES, "__version__"])
