"""Callbacks for `rx.sample` and `rx.train`: logs and early stopping.

Pass one, or several as a list: `callback=[rx.callbacks.csv("log.csv"), my_function]`.
"""

from replicax.callbacks.logs import csv, flat, json_lines, numbers, tensorboard
from replicax.callbacks.stopping import stop_after
from replicax.run.progress import Progress
