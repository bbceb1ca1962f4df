"""What `trained.heating` says of `sghmc-pt` on mini-batches, beside what is true.

    python benchmarks/heating.py [OUT.json]

The truth is a run with all rows at every step, and otherwise the same: how much larger the mean
energy of the coldest networks is on mini-batches, per half of the parameters that the data
determine (twice the variance of the energy without noise), and how much larger the variances of
their outputs are. Networks of one hidden layer and linear ones, tables of scikit-learn.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from ensembles import rows_of

import replicax as rx

STEPS, BURN_IN, KEPT = 24_000, 6_000, 400
CASES = [
    ("cancer", (), 0.02), ("cancer", (), 0.1), ("cancer", (10,), 0.02), ("cancer", (10,), 0.1),
    ("diabetes", (), 0.005), ("diabetes", (), 0.02), ("diabetes", (10,), 0.005),
    ("diabetes", (10,), 0.02),
]  # fmt: skip


def problem_of(task, hidden, batch_size):
    """The problem with so many rows in a mini-batch, None for all, and a start at one point."""
    inputs, targets = rows_of(task)
    inputs = inputs.astype(np.float32)
    size = len(inputs) if batch_size is None else batch_size
    options = {"batch_size": size, "weight_decay": 1e-2, "test": (inputs, targets)}
    if task == "cancer":
        network = rx.nn.mlp(inputs.shape[1], 2, hidden=hidden)
        problem = rx.classification(network, (inputs, targets), **options)
    else:
        network = rx.nn.mlp(inputs.shape[1], 1, hidden=hidden)
        problem = rx.regression(network, (inputs, targets), noise=50.0, **options)
    return problem, network.init(jax.random.key(0))


def run(task, hidden, rate, batch_size):
    """Sample, and return the energies of the coldest networks, their outputs, and the heating."""
    problem, start = problem_of(task, hidden, batch_size)
    epochs, burn_in = STEPS // problem.steps_per_epoch, BURN_IN // problem.steps_per_epoch
    method = rx.sghmc_pt(rate, temperature=(1.0, 1.5), adapt=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trained = rx.train(
            problem, start, epochs=epochs, burn_in=burn_in, num_replicas=2, method=method,
            keep_averaged=KEPT, progress=False,
        )  # fmt: skip
    told = any("heats" in str(one.message) for one in said)
    networks = trained.networks
    points = jax.tree.map(jnp.asarray, (networks.params, networks.model_state))
    test, rows = problem.test, problem.num_rows
    outputs = jax.vmap(lambda point: test.outputs(*point, test.inputs))(points)
    score = jax.vmap(lambda one: test.likelihood.score(one, test.targets)["nll"])
    return rows * np.asarray(score(outputs), float), np.asarray(outputs), trained.heating, told


def measured(task, hidden, rate):
    """Return a row: what is said, and what is true."""
    began = time.process_time()
    hot, outputs, heating, told = run(task, hidden, rate, 32)
    cold, others, none, _ = run(task, hidden, rate, None)
    determined = 2 * cold.var()
    spread = lambda values: values.var(0).mean()  # noqa: E731
    return {
        "task": task, "hidden": list(hidden), "rate": rate, "said": heating, "told": told,
        "said of all rows": none, "determined": determined,
        "true, energy": float((hot.mean() - cold.mean()) / (determined / 2)),
        "true, outputs": float(spread(outputs) / spread(others) - 1),
        "networks": len(hot), "seconds": time.process_time() - began,
    }  # fmt: skip


def main():
    rows = []
    for case in CASES:
        rows.append(measured(*case))
        print(json.dumps(rows[-1]), flush=True)
        if len(sys.argv) > 1:
            Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
