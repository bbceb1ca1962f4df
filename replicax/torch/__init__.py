"""Replica exchange for PyTorch training loops: one optimizer per replica, one call per step."""

from replicax.torch.average import Averaged, average
from replicax.torch.exchange import Exchange
from replicax.torch.lightning import lightning_callback
