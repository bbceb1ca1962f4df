"""A last layer drawn exactly, beside the last-layer Laplace of laplace-torch, in one run.

    pip install torch laplace-torch ".[data]"
    python benchmarks/last_layer.py --out results.json        # about ten minutes of processor time

A small convolutional network is trained by PyTorch on the digits 0 to 7 of scikit-learn. All
methods have its features, and their own posterior of its last layer: 32 x 8 weights and 8 biases.
Digits 8 and 9 are inputs from outside, which predictive entropy should tell from those inside.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from laplace import Laplace
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import replicax as rx

NUM_FEATURES, NUM_CLASSES, EPOCHS = 32, 8, 80
STEPS = {"num_steps": 1_500, "burn_in": 500, "num_chains": 2, "progress": False}


def digits(seed: int, num_rows: int) -> dict[str, tuple[Any, Any]]:
    """Rows to train on, to test on, and of other classes."""
    images, labels = map(np.asarray, load_digits(return_X_y=True))
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(seed).permutation(len(images))
    inside = order[labels[order] < NUM_CLASSES]
    outside = order[labels[order] >= NUM_CLASSES]
    places = {"train": inside[:num_rows], "test": inside[-700:], "outside": outside}
    return {name: (images[place], labels[place]) for name, place in places.items()}


def trained(images: np.ndarray, labels: np.ndarray, seed: int) -> torch.nn.Sequential:
    """A network that PyTorch has trained."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(512, NUM_FEATURES), torch.nn.ReLU(),
        torch.nn.Linear(NUM_FEATURES, NUM_CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 2e-3, weight_decay=1e-4)
    for _ in range(EPOCHS):
        for inputs, targets in batches(images, labels, shuffle=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    return model.eval()


def batches(images: np.ndarray, labels: np.ndarray, shuffle: bool = False) -> DataLoader:
    pairs = TensorDataset(torch.as_tensor(images), torch.as_tensor(labels))
    return DataLoader(pairs, batch_size=64, shuffle=shuffle)


def of_laplace(
    model: torch.nn.Sequential, rows: tuple[np.ndarray, np.ndarray], approximation: str
) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
    """The predictions of laplace-torch, and the standard deviation of its prior."""
    laplace: Any = Laplace(
        model, "classification", subset_of_weights="last_layer", hessian_structure="full"
    )
    laplace.fit(batches(*rows))
    laplace.optimize_prior_precision(method="marglik", pred_type="glm", link_approx=approximation)

    def log_probs(images: np.ndarray) -> np.ndarray:
        options = {"pred_type": "glm", "link_approx": approximation, "n_samples": 400}
        probs = laplace(torch.as_tensor(images), **options).detach().numpy().astype(float)
        probs = np.maximum(probs, 1e-12)
        return np.log(probs / probs.sum(1, keepdims=True))

    return log_probs, float(laplace.prior_precision.mean()) ** -0.5


def features_of(model: torch.nn.Sequential) -> Callable[[np.ndarray], np.ndarray]:
    return lambda images: model[:-1](torch.as_tensor(images)).detach().numpy()


def methods(
    model: torch.nn.Sequential, rows: tuple[np.ndarray, np.ndarray], seed: int
) -> dict[str, tuple[Callable, float | None, float]]:
    """The predictions of every method, its prior, and the processor time it took."""
    found: dict[str, tuple[Callable, float | None, float]] = {}

    def plain(images: np.ndarray) -> np.ndarray:
        return torch.log_softmax(model(torch.as_tensor(images)).double(), 1).detach().numpy()

    found["network"] = plain, None, 0.0
    for approximation in ("probit", "mc"):
        began = time.process_time()
        predict, sd = of_laplace(model, rows, approximation)
        found[f"laplace-torch, {approximation}"] = predict, sd, time.process_time() - began
    same = found["laplace-torch, mc"][1]
    for name, prior_sd in (("replicax", None), ("replicax, prior of laplace-torch", same)):
        began = time.process_time()
        head = rx.last_layer(features_of(model), rows, num_classes=NUM_CLASSES, prior_sd=prior_sd)
        fitted = time.process_time() - began
        run = rx.sample(head, seed=seed, **STEPS)
        spent = time.process_time() - began
        print(f"    {name}: prior {head.prior_sd:.3g}; {run.problems()}", flush=True)
        mode = lambda x, head=head: head.predictions(head.best, x)  # noqa: E731
        draws = lambda x, head=head, run=run: head.predictions(run, x)  # noqa: E731
        found[f"{name}, mode"] = mode, head.prior_sd, fitted
        found[f"{name}, exact"] = draws, head.prior_sd, spent
    return found


def measured(seed: int, num_rows: int) -> dict[str, dict[str, float | None]]:
    """The scores of every method for one network."""
    parts = digits(seed, num_rows)
    model = trained(*parts["train"], seed)
    scores = {}
    for name, (predict, sd, seconds) in methods(model, parts["train"], seed).items():
        inside, outside = predict(parts["test"][0]), predict(parts["outside"][0])
        metrics = rx.predict.evaluate(inside, parts["test"][1])
        entropies = rx.predict.entropy(inside), rx.predict.entropy(outside)
        scores[name] = {
            "accuracy": metrics.accuracy, "nll": metrics.nll,
            "calibration_error": metrics.calibration_error,
            "auroc": rx.predict.auroc(*entropies),
            "prior_sd": sd, "seconds": seconds,
        }  # fmt: skip
    return scores


def table(results: list[dict[str, Any]], num_rows: int) -> str:
    """Mean and standard deviation over networks, as Markdown."""
    some = [one["scores"] for one in results if one["num_rows"] == num_rows]
    columns = {"nll": 3, "calibration_error": 3, "auroc": 3, "accuracy": 3, "prior_sd": 2,
               "seconds": 1}  # fmt: skip
    head = f"| {num_rows} rows, {len(some)} networks | NLL | calibration error | AUROC |"
    lines = [f"{head} accuracy | prior sd | seconds |", "|---|---|---|---|---|---|---|"]
    for name in some[0]:
        cells = []
        for column, digits in columns.items():
            values = [one[name][column] for one in some if one[name][column] is not None]
            spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
            cells.append(f"{np.mean(values):.{digits}f} ± {spread:.{digits}f}" if values else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="A last layer drawn exactly")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, nargs="+", default=[150, 600])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results: list[dict[str, Any]] = []
    if options.out and options.out.exists():  # of a run that was interrupted
        results = json.loads(options.out.read_text())
    done = {(one["num_rows"], one["seed"]) for one in results}
    for num_rows in options.rows:
        for seed in range(options.seeds):
            if (num_rows, seed) in done:
                continue
            print(f"{num_rows} rows, seed {seed}", flush=True)
            scores = measured(seed, num_rows)
            results.append({"num_rows": num_rows, "seed": seed, "scores": scores})
            if options.out:
                options.out.write_text(json.dumps(results, indent=1))
        print(table(results, num_rows), flush=True)


if __name__ == "__main__":
    main()
