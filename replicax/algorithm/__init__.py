"""One step of Algorithm 1: arrays in, arrays out, no disk and no clock. Start at `step.py`."""

from replicax.algorithm import ladder
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.state import Info, Settings, State, init
from replicax.algorithm.step import build_step
from replicax.algorithm.tuning import Tuning
