"""Networks: `rx.classification`, `rx.supervised`, `rx.train` and what they are given."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import in_method
from tiny_networks import NETWORK, tiny_data, tiny_problem

import replicax as rx
from bad_inputs import (
    INF,
    NAN,
    NOT_FLAGS,
    NOT_NAMES,
    NOT_NUMBERS,
    NOT_WHOLE,
    Meant,
    Refused,
    Thing,
    crossed,
    listed,
)
from replicax.networks.by_name import NamedProblem
from replicax.nn.network import Network, apply_dense, init_dense
from replicax.run.options import Training
from replicax.run.program import Program
from replicax.run.resolve import resolve

DATA, PROBLEM = tiny_data(), tiny_problem()


def dense(num_outputs: int, num_inputs: int = 36) -> Network:
    """One dense layer: quick to trace."""

    def init(key: Any) -> tuple[Any, Any]:
        return init_dense(key, num_inputs, num_outputs), {}

    def apply(params: Any, state: Any, images: Any, train: bool) -> tuple[Any, Any]:
        return apply_dense(params, images.reshape(len(images), -1)), state

    return Network(init, apply)


def train(**options: Any) -> rx.Trained:
    """A call of `rx.train` that is fine but for what is given; options of its method, the paper's,
    stand beside the others."""
    chosen = {"problem": PROBLEM, "start": NETWORK.init, "epochs": 2, "num_replicas": 3}
    chosen = {**chosen, "progress": False, **options}
    if "method" not in chosen:
        chosen = in_method(chosen)
    return rx.train(chosen.pop("problem"), chosen.pop("start"), **chosen)


def classify(**options: Any) -> rx.Trained:
    """A call of `rx.classification` and of `rx.train`."""
    chosen = {"network": dense(3), "dataset": DATA, "batch_size": 8, "augment": False} | options
    network = chosen.pop("network")
    problem = rx.classification(network, chosen.pop("dataset"), **chosen)
    return train(problem=problem, start=network.init)


def loss_fn(params: Any, model_state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
    return jnp.mean((params - batch) ** 2), model_state


LABELS, IMAGES = DATA.test_labels, DATA.test_images
TEST = rx.Test(lambda p, s, x: jnp.zeros((len(x), 3)) + p, IMAGES, jnp.asarray(LABELS), 3)


def supervise(**options: Any) -> rx.Trained:
    """A call of `rx.supervised` and of `rx.train`."""
    chosen = {"loss_fn": loss_fn, "data": np.ones(32, np.float32), "batch_size": 8} | options
    problem = rx.supervised(chosen.pop("loss_fn"), chosen.pop("data"), **{"test": TEST} | chosen)
    return train(problem=problem, start=(0.5, {}))


def labelled(**changes: Any) -> dict[str, Any]:
    return {"dataset": DATA._replace(**changes)}


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "no epochs": ({"epochs": 0}, "epochs"),
    "epochs not given": ({"epochs": None}, "epochs"),
    "no replicas": ({"num_replicas": 0}, "num_replicas"),
    "one replica of a ladder": ({"num_replicas": 1}, "num_replicas"),
    "a billion replicas": ({"num_replicas": 10**9}, "num_replicas memory"),
    "momentum 1.5": ({"momentum": 1.5}, "momentum"),
    "momentum 1": ({"momentum": 1}, "momentum"),
    "momentum negative": ({"momentum": -0.9}, "momentum"),
    "momentum nothing": ({"momentum": None}, "momentum"),
    "temperatures that fall": ({"temperature": (2, 1)}, "temperature"),
    "temperature negative": ({"temperature": -1.0}, "temperature"),
    "temperature infinite": ({"temperature": INF}, "temperature"),
    "rates of an ensemble": ({"method": rx.Method("own", (0.1, 0.2))}, "learning_rate own ladder"),
    "a kernel that is none": ({"kernel": "adams"}, "kernel"),
    "steps of adaptation": ({"adapt": 3}, "adapt"),
    "rates decrease": ({"learning_rate": (0.1, 0.01)}, "learning_rate"),
    "rate 0": ({"learning_rate": 0.0}, "learning_rate"),
    "rate negative": ({"learning_rate": -0.1}, "learning_rate"),
    "too many rates": ({"learning_rate": (0.1, 0.2, 0.3, 0.4)}, "learning_rate"),
    "rates in words": ({"learning_rate": ("a", "b")}, "learning_rate"),
    "rate auto": ({"learning_rate": "auto"}, "learning_rate"),
    "rate in words": ({"learning_rate": "fast"}, "learning_rate"),
    "temperatures as they were written": ({"temperature": (2.0, 1.0)}, "temperature (2.0, 1.0)"),
    "one temperature of a tempered likelihood": (
        {"method": rx.sghmc_pt(rule="deterministic", temperature=1.0)},
        "temperature sghmc-pt",
    ),
    "a tempered likelihood of no temperature": (
        {"method": rx.Method("own", 0.1, schedule="deo", tempers_likelihood=True)},
        "temperature own",
    ),
    "swap rate 0": ({"target_swap_rate": 0}, "target_swap_rate"),
    "swap rate 2": ({"target_swap_rate": 2}, "target_swap_rate"),
    "window 0": ({"window": 0}, "window"),
    "a window longer than the run": ({"window": 9}, "window"),
    "gain negative": ({"gain": -1}, "gain"),
    "buffer infinite": ({"buffer": INF}, "buffer"),
    "buffer gain negative": ({"buffer_gain": -1.0}, "buffer_gain"),
    "burn_in of all epochs": ({"burn_in": 2}, "burn_in epochs"),
    "burn_in negative": ({"burn_in": -1}, "burn_in"),
    "seed of 2**70": ({"seed": 2**70}, "seed"),
    "no folder": ({"run_dir": ""}, "run_dir"),
    "a number as folder": ({"run_dir": 3}, "run_dir"),
    "callback no function": ({"callback": 3}, "callback"),
    "note a list": ({"note": [1]}, "note"),
    "note of objects": ({"note": {"a": Thing()}}, "note"),
    "checkpoint_every 0": ({"checkpoint_every": 0}, "checkpoint_every"),
    "keep_averaged negative": ({"keep_averaged": -1}, "keep_averaged"),
}
PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "a network": ({"problem": NETWORK}, "problem rx.classification"),
    "a data set": ({"problem": DATA}, "problem rx.classification"),
    "a function": ({"problem": loss_fn}, "problem"),
    "nothing": ({"problem": None}, "problem"),
    "swapped": ({"problem": NETWORK.init, "start": PROBLEM}, "problem start"),
    "a posterior": (
        {"problem": rx.bayesian(lambda m, r: -(r**2), lambda m: 0.0 * m, np.ones(4))},
        "problem",
    ),
    "start a problem": ({"start": PROBLEM}, "start"),
    "start a network": ({"start": NETWORK}, "start network.init"),
    "start nothing": ({"start": None}, "start"),
    "start in words": ({"start": "nowhere"}, "nowhere run"),
    "start no folder": ({"start": ""}, "start"),
    "start a number": ({"start": 3.0}, "start"),
    "start params alone": ({"start": NETWORK.init(jax.random.key(0))[0]}, "start model_state"),
    "start another network's": ({"start": dense(3).init}, "start"),
    "start another network's params": ({"start": dense(3).init(jax.random.key(0))}, "start"),
    "start of another size": (
        {"problem": tiny_problem(dense(3)), "start": dense(3, 9).init},
        "start",
    ),
    "start of more outputs": (
        {"problem": tiny_problem(dense(3)), "start": dense(4).init},
        "outputs",
    ),
    "start of too few networks": (
        {"start": rx.per_replica(NETWORK.init(jax.random.key(0)))},
        "per_replica",
    ),
}
CLASSES: dict[str, tuple[dict[str, Any], str]] = {
    "labels one-hot of others": (
        labelled(train_labels=np.eye(4, dtype=np.int32)[DATA.train_labels]),
        "train_labels",
    ),
    "labels of two": (
        labelled(train_labels=np.ones((32, 3), np.int32)),
        "train_labels",
    ),
    "labels float": (labelled(train_labels=DATA.train_labels.astype(float)), "train_labels"),
    "labels in a list": (labelled(train_labels=DATA.train_labels.tolist()), "train_labels"),
    "labels out of range": (labelled(train_labels=DATA.train_labels + 1), "train_labels"),
    "labels negative": (labelled(train_labels=DATA.train_labels - 1), "train_labels"),
    "labels too few": (labelled(train_labels=DATA.train_labels[:5]), "train labels"),
    "test labels float": (labelled(test_labels=LABELS.astype(np.float32)), "test_labels"),
    "test labels out of range": (labelled(test_labels=LABELS + 3), "test_labels"),
    "test images too few": (labelled(test_images=IMAGES[:3]), "test images"),
    "images normalised": (labelled(train_images=DATA.train_images / 255 - 0.5), "train_images"),
    "images of further shades": (labelled(train_images=DATA.train_images / 256), "train_images"),
    "images flat": (labelled(train_images=DATA.train_images.reshape(32, -1)), "train_images"),
    "test images of another size": (labelled(test_images=IMAGES[:, :3]), "test images"),
    "no images": (
        labelled(train_images=DATA.train_images[:0], train_labels=LABELS[:0]),
        "train images",
    ),
    "classes 2": (labelled(num_classes=2), "num_classes"),
    "classes in words": (labelled(num_classes="three"), "num_classes"),
    "mean of three channels": (labelled(mean=(0.5, 0.5, 0.5)), "mean"),
    "std 0": (labelled(std=(0.0,)), "std"),
    "too many outputs": ({"network": dense(4)}, "outputs 4 3"),
    "too few outputs": ({"network": dense(2)}, "outputs 2 3"),
    "one output": ({"network": dense(1)}, "outputs 1 3"),
    "a network of other images": ({"network": dense(3, 9)}, "network"),
    "a network that branches": (
        {
            "network": dense(3)._replace(
                apply=lambda p, s, x, train: (x if x[0, 0, 0, 0] > 0 else -x, s)
            )
        },
        "network line",
    ),
    "a network without a state": (
        {"network": dense(3)._replace(apply=lambda p, s, x, train: jnp.zeros((len(x), 3)))},
        "network state",
    ),
    "network a function": ({"network": loss_fn}, "network"),
    "network nothing": ({"network": None}, "network"),
    "swapped": ({"network": DATA, "dataset": dense(3)}, "network dataset"),
    "data bytes": ({"dataset": (IMAGES, LABELS)}, "dataset uint8"),
    "data of three": ({"dataset": (IMAGES, LABELS, LABELS)}, "dataset"),
    "data of unequal rows": ({"dataset": (IMAGES / 9.0, LABELS[:3])}, "dataset rows"),
    "data nan": ({"dataset": (IMAGES * NAN, LABELS)}, "dataset NaN"),
    "data labels float": ({"dataset": (IMAGES / 9.0, LABELS / 2)}, "dataset"),
    "data labels out of range": (
        {"dataset": (IMAGES / 9.0, LABELS), "num_classes": 2},
        "dataset num_classes",
    ),
    "data test of another size": (
        {"dataset": (IMAGES / 9.0, LABELS), "test": (IMAGES[:, :3] / 9.0, LABELS)},
        "test",
    ),
    "data too few outputs": ({"network": dense(2), "dataset": (IMAGES / 9.0, LABELS)}, "outputs"),
    "a test of its own": ({"test": (IMAGES, LABELS)}, "test"),
    "data in words": ({"dataset": "digits"}, "dataset"),
    "size 0": ({"batch_size": 0}, "batch_size"),
    "size too large": ({"batch_size": 33}, "batch_size"),
    "augment in words": ({"augment": "flip"}, "augment"),
    "augment nothing": ({"augment": None}, "augment"),
    "weight decay negative": ({"weight_decay": -0.1}, "weight_decay"),
    "an option misspelt": ({"batchsize": 8}, "batchsize"),
}
LOSSES: dict[str, tuple[dict[str, Any], str]] = {
    "no function": ({"loss_fn": 3}, "loss_fn"),
    "of one argument": ({"loss_fn": lambda p: (p, {})}, "loss_fn model_state"),
    "without a state": ({"loss_fn": lambda p, s, b, k: jnp.mean((p - b) ** 2)}, "loss model_state"),
    "of an array": ({"loss_fn": lambda p, s, b, k: ((p - b) ** 2, s)}, "loss shape"),
    "of words": ({"loss_fn": lambda p, s, b, k: ("low", s)}, "loss"),
    "that branches": ({"loss_fn": lambda p, s, b, k: (p if p > 0 else -p, s)}, "loss_fn line"),
    "of another state": (
        {"loss_fn": lambda p, s, b, k: (jnp.mean(b - p), {"a": b})},
        "model_state",
    ),
    "data words": ({"data": np.array(["a"] * 32)}, "data"),
    "data nothing": ({"data": None}, "data"),
    "data in words": ({"data": "digits"}, "data"),
    "data one number": ({"data": 3.0}, "data"),
    "data of unequal rows": ({"data": (np.ones(32), np.ones(3))}, "data rows"),
    "size 0": ({"batch_size": 0}, "batch_size"),
    "size too large": ({"batch_size": 33}, "batch_size"),
    "prepare no function": ({"prepare": 3}, "prepare"),
    "prepare of one": ({"prepare": lambda batch: batch}, "prepare"),
    "prepare that fails": ({"prepare": lambda key, batch: batch["x"]}, "prepare"),
    "test no test": ({"test": (IMAGES, LABELS)}, "test rx.Test"),
    "test labels one-hot of four": ({"test": TEST._replace(labels=jnp.eye(4)[LABELS])}, "labels"),
    "logits no function": ({"logits": 3}, "logits"),
    "test labels float": ({"test": TEST._replace(labels=LABELS.astype(float))}, "labels"),
    "test labels out of range": ({"test": TEST._replace(labels=LABELS + 1)}, "labels"),
    "test classes too few": ({"test": TEST._replace(num_classes=2)}, "num_classes"),
    "test inputs too few": ({"test": TEST._replace(inputs=IMAGES[:3])}, "inputs labels"),
    "test outputs too many": (
        {"test": TEST._replace(logits=lambda p, s, x: jnp.zeros((len(x), 4)) + p)},
        "logits 4 3",
    ),
    "test logits no function": ({"test": TEST._replace(logits=3)}, "logits"),
    "test logits that fail": ({"test": TEST._replace(logits=lambda p, s, x: p["a"])}, "logits"),
}
METHODS: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": ""}, "name"),
    "averages misspelt": ({"averages": "cold"}, "averages coldest"),
    "cycles of no epoch": ({"cycle_epochs": 0}, "cycle_epochs"),
    "a negative warm-up": ({"warmup_epochs": -1}, "warmup_epochs"),
    "gradients of no length": ({"clip_norm": 0}, "clip_norm"),
    "a likelihood tempered in words": ({"tempers_likelihood": "yes"}, "tempers_likelihood"),
    "one network on a ladder": ({"is_single": True, "schedule": "deo"}, "schedule"),
    "a Gaussian without cycles": ({"averages": "gaussian"}, "averages"),
    "a Gaussian of some epochs": (
        {"averages": "gaussian", "rate_schedule": "cyclical", "test_every": 2},
        "test_every",
    ),
    "never tested": ({"test_every": 0}, "test_every"),
    "a rate schedule of no argument": ({"rate_schedule": lambda: 1.0}, "rate_schedule step"),
}


def trained(method: rx.Method) -> Program:
    """The program of a training."""
    return resolve(PROBLEM, Training(epochs=2, num_replicas=3), method)


MEANT = [
    Meant(
        "train: temperature 0",
        lambda: trained(rx.sgld(temperature=0)),
        "no noise, not the method's own",
        lambda program: not program.ladder.temperature.any(),
    ),
    Meant(
        "train: buffer auto",
        lambda: trained(rx.deo_star(buffer="auto", buffer_gain="auto")),
        "as in rx.sample: the first steps measure it",
        lambda program: program.settings.tuning.measure_buffer,
    ),
    Meant(
        "train: momentum 0",
        lambda: trained(rx.deo_star(momentum=0)),
        "plain SGD",
        lambda program: program.kernel.traits.spec["name"] == "sgld",
    ),
    Meant(
        "train: one rate for a ladder",
        lambda: trained(rx.deo_star(learning_rate=0.1)),
        "every rung has it",
        lambda program: program.ladder.learning_rate.tolist() == [0.1] * 3,
    ),
    Meant(
        "classification: a size of all images",
        lambda: rx.classification(dense(3), DATA, batch_size=32),
        "one step is an epoch",
        lambda problem: problem.steps_per_epoch == 1,
    ),
    Meant(
        "classification: labels one-hot and of 64 bits",
        lambda: rx.classification(
            dense(3),
            DATA._replace(
                train_labels=np.eye(3)[DATA.train_labels], test_labels=LABELS.astype(np.int64)
            ),
            batch_size=8,
        ),
        "class numbers",
        lambda problem: (
            np.array_equal(problem.batches.data[1], DATA.train_labels)
            and np.array_equal(problem.test.targets, LABELS)
        ),
    ),
    Meant(
        "classification: a pair",
        lambda: rx.classification(
            dense(3), (IMAGES / 9.0, LABELS), test=(IMAGES / 9.0, LABELS), batch_size=8
        ),
        "inputs as they are",
        lambda problem: (
            problem.test.likelihood.num_classes == 3 and problem.num_rows == len(LABELS)
        ),
    ),
    Meant(
        "supervised: test labels one-hot",
        lambda: rx.supervised(
            loss_fn, np.ones(8), batch_size=4, test=TEST._replace(labels=jnp.eye(3)[LABELS])
        ),
        "class numbers",
        lambda problem: np.array_equal(problem.test.targets, LABELS),
    ),
]
TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "model misspelt": ({"model": "resnet2O", "data": "digits"}, "model"),
    "a depth that is none": ({"model": "resnet21", "data": "digits"}, "depth"),
    "data misspelt": ({"model": "small", "data": "digit"}, "data"),
    "a file that is not there": ({"model": "mlp", "data": "rows.npz"}, "rows.npz"),
}
BESIDE: dict[str, tuple[dict[str, Any], str]] = {
    "a rate": ({"epochs": 2, "learning_rate": 0.1}, "learning_rate method=rx.deo_star("),
    "cycles": ({"epochs": 2, "cycle_epochs": 5}, "cycle_epochs method"),
    "a misspelt option": ({"epochs": 2, "burnin": 1}, "burnin burn_in"),
}
ROWS = [
    *crossed("train", train, ("epochs", "num_replicas", "burn_in", "cycle_epochs"), NOT_WHOLE),
    *crossed("train", train, ("keep_averaged",), NOT_WHOLE),
    *crossed("train", train, ("seed", "window", "checkpoint_every", "data_parallel"), NOT_WHOLE),
    *crossed("train", train, ("momentum", "temperature", "target_swap_rate"), NOT_NUMBERS),
    *crossed("train", train, ("learning_rate", "buffer", "gain", "buffer_gain"), NOT_NUMBERS),
    *crossed("train", train, ("method", "on_swap", "on_nonfinite"), NOT_NAMES),
    *crossed("train", train, ("keep_networks", "progress"), NOT_FLAGS),
    *crossed("classification", classify, ("batch_size",), NOT_WHOLE),
    *crossed("classification", classify, ("augment", "prior_in_energy"), NOT_FLAGS),
    *crossed("classification", classify, ("weight_decay",), NOT_NUMBERS),
    *listed("train", train, OPTIONS),
    *listed("problem", train, PROBLEMS),
    *listed("classification", classify, CLASSES),
    *listed("supervised", supervise, LOSSES),
    *listed("method", lambda **o: rx.Method(**{"name": "own", **o}), METHODS),
    *listed("task", lambda **o: NamedProblem(**o).problem(), TASKS),
    *listed("train, beside its method", lambda **o: rx.train(PROBLEM, NETWORK.init, **o), BESIDE),
    Refused("train: a start of no run", lambda: train(start="nowhere"), ("nowhere",)),
    Refused(
        "train: problem and start swapped",
        lambda: rx.train(NETWORK.init, PROBLEM, epochs=1),
        ("rx.train(problem, start",),
    ),  # type: ignore
    Refused(
        "train: nan rate",
        lambda: train(method=rx.deo_star(learning_rate=(NAN, 0.1))),
        ("learning_rate",),
    ),
    *MEANT,
]
