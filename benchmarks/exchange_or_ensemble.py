"""Does exchange beat a plain ensemble? Networks of every rung, averaged in many ways.

All runs start from the same pretrained networks and have the same length. After every epoch the
predictions of all networks are kept, so that one run tells every way to average: of an ensemble
all networks every tenth epoch, of a ladder one network an epoch, from its K coldest rungs in turn.
Both average as many networks as there are epochs. With `--validation N` the networks are trained
without N training images and tested on them: settings are chosen that way, and `--test` judges the
average of each run on the test images, too. `--own-starts` trains start networks for every seed.

    python benchmarks/exchange_or_ensemble.py --data-dir DIR --validation 5000 --starts starts
    python benchmarks/exchange_or_ensemble.py --model small --data digits --quick --starts starts
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx
from replicax.networks.by_name import NamedProblem
from replicax.networks.evaluate import build_outputs
from replicax.run.devices import describe_machine

PICK_EVERY = 10  # epochs between two averages of a whole ensemble
LAST = 5  # epochs over which single networks are judged
SETTINGS: dict[str, rx.Method] = {
    "ensemble .005": rx.ensemble(0.005),
    "ensemble .01": rx.ensemble(0.01),
    "ensemble .02": rx.ensemble(0.02),
    "S .02, .005-.02": rx.deo_star((0.005, 0.02), target_swap_rate=0.02),
    "S .02, .005-.05": rx.deo_star((0.005, 0.05), target_swap_rate=0.02),
    "S .05, .005-.05": rx.deo_star((0.005, 0.05), target_swap_rate=0.05),
    "S .02, .01-.05": rx.deo_star((0.01, 0.05), target_swap_rate=0.02),
    "S .05, .01-.05": rx.deo_star((0.01, 0.05), target_swap_rate=0.05),
    "scratch, S .02, .005-.1": rx.deo_star((0.005, 0.1), target_swap_rate=0.02),
}


class Recorder:
    """Keeps the logits of all networks after every epoch, coldest rung first."""

    def __init__(self, test: Any) -> None:
        self.test, self.outputs = test, build_outputs(test)
        self.epochs: list[np.ndarray] = []  # (rung, image, class) each

    def __call__(self, epoch: Any) -> dict[str, Any]:
        logits = self.outputs(epoch.networks, self.test.inputs)
        self.epochs.append(np.asarray(logits.astype(jnp.float16)))
        return {}

    def score(self, logits: Any) -> tuple[float, float]:
        """Return NLL and accuracy."""
        scores = self.test.likelihood.score(logits, self.test.targets)
        return float(scores["nll"]), float(scores["accuracy"])

    def average(self, chosen: list[tuple[int, int]]) -> dict[str, float]:
        """Return the scores of an average over networks (epoch, rung), the epochs from 0."""
        total = rx.predict.Average.empty(*self.epochs[0].shape[1:])
        for epoch, rung in chosen:
            total = _add(total, jnp.asarray(self.epochs[epoch][rung], jnp.float32))
        found: dict[str, float] = {"networks": len(chosen)}
        for by in ("logits", "probabilities"):
            log_probs = rx.predict.log_probabilities(total, by)
            nll, right = self.score(log_probs)
            found |= {f"nll_{by}": nll, f"accuracy_{by}": right}
        return found

    def alone(self) -> list[dict[str, float]]:
        """Return the scores of single networks by rung, mean over the last epochs."""
        last = [jnp.asarray(logits, jnp.float32) for logits in self.epochs[-LAST:]]
        rows = [[self.score(one) for one in logits] for logits in last]
        means = np.mean(np.asarray(rows, float), axis=0)
        return [{"nll": nll, "accuracy": right} for nll, right in means.tolist()]


_add = jax.jit(rx.predict.add)


def ways(recorder: Recorder, is_ensemble: bool) -> dict[str, dict[str, float]]:
    """Return the scores of every way to average a run."""
    num_epochs, num_rungs = len(recorder.epochs), len(recorder.epochs[0])
    if is_ensemble:
        every = min(PICK_EVERY, num_epochs)
        picked = range(every - 1, num_epochs, every)
        chosen = [(epoch, rung) for epoch in picked for rung in range(num_rungs)]
        return {"all": recorder.average(chosen)}
    return {
        f"{k} coldest": recorder.average([(epoch, epoch % k) for epoch in range(num_epochs)])
        for k in range(1, num_rungs + 1)
    }


def average_of(trained: Any, inputs: Any, labels: Any) -> dict[str, dict[str, float]]:
    """Return the scores of the networks that the run itself averaged, for any inputs."""
    scores = {}
    for by in ("logits", "probabilities"):
        log_probs = trained.predict(inputs, by=by)
        nll, accuracy = rx.predict.nll(log_probs, labels), rx.predict.accuracy(log_probs, labels)
        scores[by] = {"nll": float(nll), "accuracy": float(accuracy)}
    return scores


def run_setting(
    name: str, problem: Any, start: Any, seed: int, args: Any, test: Any = None
) -> dict[str, Any]:
    method, recorder = SETTINGS[name], Recorder(problem.test)
    epochs = args.epochs + args.start_epochs if name.startswith("scratch") else args.epochs
    began = time.monotonic()
    trained = rx.train(
        problem, start, epochs=epochs, num_replicas=args.replicas, seed=seed, evaluate=recorder,
        progress=False, method=method,
    )  # fmt: skip
    seconds = time.monotonic() - began
    if name.startswith("scratch"):
        del recorder.epochs[: args.start_epochs]
    judged = {"held out": {by: trained.metrics(by)._asdict() for by in ("logits", "probabilities")}}
    if test is not None:
        judged["test"] = average_of(trained, *test)
    return {
        "setting": name,
        "seed": seed,
        "options": {
            "method": method.name,
            "learning_rate": method.learning_rate,
            "target_swap_rate": method.target_swap_rate,
        },
        "epochs": epochs,
        "seconds": round(seconds, 1),
        "round_trips": int(np.sum(trained.round_trips)),
        "restarts": np.asarray(trained.restarts).tolist(),
        "learning_rates": np.asarray(trained.learning_rates)[0].tolist(),
        "averaged": float(trained.average.weight),
        "average": judged,
        "alone": recorder.alone(),
        "ways": ways(recorder, method.picks_all),
    }


def show(row: dict[str, Any]) -> None:
    alone = row["alone"][0]
    print(
        f"\n{row['setting']}, seed {row['seed']}: {row['seconds']:.0f} s, {row['round_trips']} "
        f"round trips, {sum(row['restarts'])} restarts; "
        f"one network {100 * alone['accuracy']:.2f} % / {alone['nll']:.4f}",
        flush=True,
    )
    for images, scores in row["average"].items():
        shown = [f"{by} {100 * s['accuracy']:.2f} % / {s['nll']:.4f}" for by, s in scores.items()]
        print(f"  {row['averaged']:.0f} networks, {images}: {', '.join(shown)}", flush=True)
    for way, found in row["ways"].items():
        print(
            f"  {way:>12}, {found['networks']:3d} networks: "
            f"logits {100 * found['accuracy_logits']:.2f} % / {found['nll_logits']:.4f}, "
            f"probabilities {100 * found['accuracy_probabilities']:.2f} % / "
            f"{found['nll_probabilities']:.4f}",
            flush=True,
        )


def pretrain(problem: Any, init: Any, folder: Path, seed: int, args: Any) -> None:
    """Train start networks into a folder."""
    began = time.monotonic()
    pretrained = rx.train(
        problem, init, method="pretrain", epochs=args.start_epochs, seed=seed,
        num_replicas=args.replicas, run_dir=folder, progress=False,
    )  # fmt: skip
    accuracy = 100 * pretrained.epochs["accuracy"][-1].mean()
    print(f"starts: {time.monotonic() - began:.0f} s, {accuracy:.2f} %", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--data-dir")
    parser.add_argument("--validation", type=int, default=0)
    parser.add_argument("--start-epochs", type=int, default=80)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--starts", type=Path, required=True, help="run folder of start networks")
    parser.add_argument("--own-starts", action="store_true", help="a folder for every seed")
    parser.add_argument("--test", action="store_true", help="judge on the test images, too")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="float32, no augmentation")
    args = parser.parse_args()
    task = NamedProblem(
        args.model, args.data, args.data_dir, batch_size=args.batch_size, augment=not args.quick,
        bf16=not args.quick, validation=args.validation,
    )  # fmt: skip
    problem, init = task.problem()
    whole = replace(task, validation=0).dataset() if args.test else None
    test = None if whole is None else (whole.test_images, whole.test_labels)
    rows = []
    for seed in args.seeds:
        starts = args.starts / f"seed-{seed}" if args.own_starts else args.starts
        if not (starts / "run.json").exists():
            pretrain(problem, init, starts, seed if args.own_starts else 0, args)
        for name in args.settings:
            start = init if name.startswith("scratch") else starts
            rows.append(run_setting(name, problem, start, seed, args, test))
            show(rows[-1])
            if args.out:
                settings = {key: str(value) for key, value in vars(args).items() if key != "out"}
                found = {"machine": describe_machine(), "arguments": settings, "rows": rows}
                args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
