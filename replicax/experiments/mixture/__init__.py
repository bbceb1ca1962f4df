"""The bias of windows on a mixture of two Gaussians, sampled and solved on a grid."""

from replicax.experiments.mixture.study import STUDY as STUDY
