"""Replica exchange as an optimiser."""

from replicax.experiments.optimise.study import STUDY as STUDY
