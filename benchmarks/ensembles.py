"""What the same epochs buy on small tables, by methods of `rx.train` from new networks.

python benchmarks/ensembles.py OUT.jsonl --seeds 0 1 2 [--epochs 40] [--networks 6] [--only digits]
    [--methods deep-ensemble "plain Adam .001"] [--split-by-seed]

Every method gets the same number of epochs for each network, pre-training and held-out rows
included; all are tested on the same rows, which decide nothing. A run that is in OUT is not made
again. `--table` prints what OUT holds.
"""

import argparse
import json
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np

import replicax as rx

TASKS = ("digits", "cancer", "wine", "diabetes", "synthetic")
BEST = {"digits": 5e-4, "cancer": 5e-4, "wine": 0.02, "diabetes": 5e-4, "synthetic": 5e-3}


def plain_adam(rate):
    """As many trainings by `optax.adam` at a constant rate."""
    return rx.deep_ensemble(rate, kernel="adam", rate_schedule="constant", warmup_epochs=0.0)


METHODS = {
    "deep-ensemble": rx.deep_ensemble,
    "ensemble-then-sample": partial(rx.ensemble_then_sample, kernel="momentum"),
    "deo-star": rx.deo_star,
    "deo-star, all rungs": lambda: rx.deo_star(averages="all"),
    "ensemble": rx.ensemble,
    "plain Adam .001": lambda: plain_adam(0.001),
    # The best of .0005 to .02, on a fifth of the training rows of seed 0.
    "plain Adam, best": plain_adam,
}


def rows_of(task):
    """Standardised inputs and targets of a task."""
    from sklearn import datasets

    if task == "synthetic":
        rng = np.random.default_rng(5)
        inputs = rng.normal(size=(4000, 8))
        targets = np.sin(2 * inputs[:, 0]) * inputs[:, 1] + np.tanh(inputs[:, 2] * inputs[:, 3])
        return inputs, targets + 0.5 * inputs[:, 4] + 0.3 * rng.normal(size=4000)
    loaded = {"digits": datasets.load_digits, "cancer": datasets.load_breast_cancer,
              "wine": datasets.load_wine, "diabetes": datasets.load_diabetes}[task]()  # fmt: skip
    inputs = loaded.data.astype(np.float64)
    spread = inputs.std() if task == "digits" else inputs.std(0)
    return (inputs - inputs.mean(0)) / spread, loaded.target


def problem_of(task, seed=0):
    """The problem of a task, a quarter of its rows for the test, and the start of its networks."""
    inputs, targets = rows_of(task)
    order = np.random.default_rng(seed).permutation(len(inputs))
    inputs, targets = inputs[order].astype(np.float32), targets[order]
    cut = len(inputs) // 4
    rows, test = (inputs[cut:], targets[cut:]), (inputs[:cut], targets[:cut])
    options = {"test": test, "batch_size": 32, "weight_decay": 1e-4}
    if task in ("digits", "cancer", "wine"):
        network = rx.nn.mlp(inputs.shape[1], int(targets.max()) + 1, hidden=(50,))
        return rx.classification(network, rows, **options), network.init
    network = rx.nn.mlp(inputs.shape[1], 1, hidden=(50,))
    return rx.regression(network, rows, **options), network.init


def measured(task, name, seed, epochs, networks, split=0):
    """Train once, and return a row of the table."""
    problem, init = problem_of(task, split)
    method = METHODS[name]
    began = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trained = rx.train(
            problem,
            init,
            epochs=epochs,
            num_replicas=networks,
            method=method(BEST[task]) if method is plain_adam else method(),
            seed=seed,
            progress=False,
        )
    metrics = trained.metrics()
    accuracy = getattr(metrics, "accuracy", None)
    return {
        "task": task, "method": name, "seed": seed, "epochs": epochs, "networks": networks,
        "nll": float(metrics.nll), "accuracy": None if accuracy is None else float(accuracy),
        "rmse": None if accuracy is not None else float(metrics.rmse),
        "averaged": float(trained.average.weight), "result": trained.result.code,
        "trips": int(trained.round_trips.sum()), "decision": trained.decision,
        "kernel": str(trained.metadata.method.kernel),
        "rate": str(trained.metadata.method.learning_rate),
        "said": len(said), "seconds": time.process_time() - began,
    }  # fmt: skip


def table(rows):
    """The table in Markdown: NLL, and accuracy or error, of every seed."""
    lines = ["| task | method | NLL by seed | accuracy % or RMSE by seed | round trips |",
             "|---|---|---|---|---|"]  # fmt: skip
    for task in TASKS:
        for name in METHODS:
            found = sorted((r for r in rows if (r["task"], r["method"]) == (task, name)),
                           key=lambda r: r["seed"])  # fmt: skip
            if found:
                nll = ", ".join(f"{r['nll']:.3f}" for r in found)
                score = [100 * r["accuracy"] if r["rmse"] is None else r["rmse"] for r in found]
                trips = ", ".join(str(r["trips"]) for r in found) if "deo" in name else ""
                score = ", ".join(f"{x:.3g}" for x in score)
                lines.append(f"| {task} | {name} | {nll} | {score} | {trips} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--networks", type=int, default=6)
    parser.add_argument("--only", nargs="+", default=TASKS)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--split-by-seed", action="store_true")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    rows = []
    if asked.out.exists():
        rows = [json.loads(line) for line in asked.out.read_text().splitlines()]
    if asked.table:
        print(table(rows))
        return
    done = {(r["task"], r["method"], r["seed"]) for r in rows}
    for seed in asked.seeds:
        for task in asked.only:
            for name in asked.methods:
                if (task, name, seed) in done:
                    continue
                split = seed if asked.split_by_seed else 0
                row = measured(task, name, seed, asked.epochs, asked.networks, split)
                print(row, flush=True)
                with asked.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
