"""What is done with a run: `rx.load`, `rx.resume`, methods of a posterior, predictions."""

import functools
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from tiny_networks import tiny_problem

import replicax as rx
from bad_inputs import NAN, NOT_NAMES, NOT_WHOLE, Meant, Refused, Thing, bowl, crossed, with_batch
from replicax.run import chunk
from replicax.run.chunk import build_chunk

_FOLDER = tempfile.TemporaryDirectory(prefix="replicax-bad-inputs-")
RUN = Path(_FOLDER.name) / "run"
OTHER = Path(_FOLDER.name) / "other"


@functools.cache
def run() -> rx.Posterior:
    """A run of 20 steps, in a folder; the loop that the test took away is put back for it."""
    replaced, chunk.build_chunk = chunk.build_chunk, build_chunk  # type: ignore
    try:
        return rx.sample(
            bowl,
            jnp.zeros(2),
            num_steps=20,
            num_replicas=3,
            method=rx.deo_star(learning_rate=(0.01, 0.1), window=2),
            burn_in=4,
            run_dir=RUN,
            progress=False,
        )
    finally:
        chunk.build_chunk = replaced


def resume(target: Any = bowl, run_dir: Any = RUN, **options: Any) -> rx.Posterior:
    run()
    return rx.resume(run_dir, target, progress=False, **options)


def start_from(folder: Any) -> rx.Trained:
    run()
    return rx.train(tiny_problem(), folder, epochs=1, num_replicas=3, progress=False)


def refused(name: str, call: Any, words: str) -> Refused:
    return Refused(name, call, tuple(words.split()))


LOG_PROBS = np.log(np.full((4, 2), 0.5))
LABELS = np.array([0, 1, 0, 1])
AVERAGE = rx.predict.Average.empty(4, 2)

RESUMED = [
    refused("resume: no folder", lambda: resume(run_dir=""), "run_dir"),
    refused("resume: a number", lambda: resume(run_dir=3), "run_dir"),
    refused("resume: nothing", lambda: resume(run_dir=None), "run_dir"),
    refused("resume: nowhere", lambda: resume(run_dir="nowhere"), "nowhere run"),
    refused("resume: a file", lambda: resume(run_dir=__file__), "run"),
    refused("resume: swapped", lambda: resume(target=str(RUN), run_dir=bowl), "run_dir"),
    refused("resume: no target", lambda: resume(target=None), "target energy(params"),
    refused("resume: target a number", lambda: resume(target=3), "target energy(params"),
    refused("resume: target a run", lambda: resume(target=str(RUN)), "target energy(params"),
    refused("resume: another energy", lambda: resume(target=lambda x: x**2), "energy scalar"),
    refused("resume: an energy with batches", lambda: resume(target=with_batch), "batches"),
    refused("resume: batches", lambda: resume(target=with_batch, batches=[1.0] * 40), "batches"),
    refused("resume: batch_size", lambda: resume(batch_size=3), "batch_size"),
    refused("resume: fewer steps", lambda: resume(num_steps=10), "num_steps 10"),
    refused("resume: a learning rate", lambda: resume(learning_rate=0.1), "learning_rate"),
    refused("resume: a misspelt option", lambda: resume(num_step=30), "num_step"),
    refused("resume: callback", lambda: resume(callback=3), "callback"),
    refused("resume: kernel", lambda: resume(kernel="hcm"), "kernel method=rx.deo_star(kernel="),
    refused("resume: another window", lambda: resume(method=rx.deo_star(window=3)), "window"),
    refused("resume: no method", lambda: resume(method=3), "method"),
    refused("resume: a method misspelt", lambda: resume(method="deo-stra"), "method deo-star"),
    refused("resume: epochs", lambda: resume(epochs=3), "epochs rx.sample num_steps"),
    refused("resume: evaluate", lambda: resume(evaluate=print), "evaluate rx.sample"),
    refused("resume: progress", lambda: rx.resume(RUN, bowl, progress="no"), "progress"),  # type: ignore
    refused("train: from a sample", lambda: start_from(RUN), "rx.train"),
    refused("train: from no folder", lambda: start_from("  "), "start"),
    refused("resume: a problem", lambda: resume(target=tiny_problem()), "batches none target"),
    refused("load: no folder", lambda: rx.load(""), "folder"),
    refused("load: a number", lambda: rx.load(3), "folder"),  # type: ignore
    refused("load: nothing", lambda: rx.load(None), "folder"),  # type: ignore
    refused("load: nowhere", lambda: rx.load("nowhere"), "nowhere run"),
    refused("load: a posterior", lambda: rx.load(run()), "folder"),  # type: ignore
    *crossed("resume", resume, ("num_steps", "checkpoint_every", "keep_checkpoints"), NOT_WHOLE),
]
POSTERIOR = [
    refused("draws_at: another rung", lambda: run().draws_at(1), "rung draw_rungs"),
    refused("draws_at: a negative rung", lambda: run().draws_at(-1), "rung draw_rungs"),
    refused("draws_at: in words", lambda: run().draws_at("hot"), "rung"),  # type: ignore
    refused("draws_at: an array", lambda: run().draws_at(np.arange(2)), "rung"),  # type: ignore
    refused("energies_at: another rung", lambda: run().energies_at(2), "rung draw_rungs"),
    refused("log_evidence: of an energy", lambda: run().log_evidence(), "evidence rx.bayesian"),
    refused("plot: no folder", lambda: run().plot(""), "out"),
    refused("plot: a number", lambda: run().plot(3), "out"),  # type: ignore
    refused("plot: a file", lambda: run().plot(__file__), "out folder"),
    refused("save: no folder", lambda: run().save(""), "folder"),
    refused("save: a number", lambda: run().save(3), "folder"),  # type: ignore
    refused("save: onto a run", lambda: run().save(RUN), "run"),
    refused("save: a file", lambda: run().save(__file__), "folder"),
]
PREDICTIONS = [
    refused("predict: logits of a vector", lambda: rx.predict.average(np.zeros(3)), "logits"),
    refused("predict: logits in words", lambda: rx.predict.average("a"), "logits"),
    refused("predict: no networks", lambda: rx.predict.average(np.zeros((0, 4, 2))), "logits"),
    refused(
        "predict: weights of others",
        lambda: rx.predict.average(np.zeros((3, 4, 2)), np.ones(2)),
        "weights",
    ),
    refused(
        "predict: weights negative",
        lambda: rx.predict.average(np.zeros((1, 4, 2)), [-1.0]),
        "weights",
    ),
    refused(
        "predict: weights nan", lambda: rx.predict.average(np.zeros((1, 4, 2)), [NAN]), "weights"
    ),
    refused("predict: other images", lambda: rx.predict.add(AVERAGE, np.zeros((3, 2))), "logits"),
    refused(
        "predict: a weight in words", lambda: rx.predict.add(AVERAGE, LOG_PROBS, "a"), "weight"
    ),
    refused(
        "predict: a negative weight", lambda: rx.predict.add(AVERAGE, LOG_PROBS, -1.0), "weight"
    ),
    refused("predict: merge with a number", lambda: rx.predict.merge(AVERAGE, 3), "average"),
    refused("predict: add to a number", lambda: rx.predict.add(3, LOG_PROBS), "average"),
    refused("predict: no average", lambda: rx.predict.log_probabilities(LOG_PROBS), "average"),
    refused("predict: an empty average", lambda: rx.predict.log_probabilities(AVERAGE), "weight"),
    refused(
        "predict: labels one-hot", lambda: rx.predict.nll(LOG_PROBS, np.eye(2)[LABELS]), "labels"
    ),
    refused("predict: labels float", lambda: rx.predict.nll(LOG_PROBS, LABELS * 1.0), "labels"),
    refused("predict: labels too large", lambda: rx.predict.nll(LOG_PROBS, LABELS + 1), "labels"),
    refused("predict: labels too few", lambda: rx.predict.nll(LOG_PROBS, LABELS[:2]), "labels"),
    refused("predict: probabilities", lambda: rx.predict.nll(np.exp(LOG_PROBS), LABELS), "log"),
    refused("predict: nan", lambda: rx.predict.nll(LOG_PROBS * NAN, LABELS), "log-probabilities"),
    refused("predict: in words", lambda: rx.predict.nll("a", LABELS), "log-probabilities"),
    refused(
        "predict: one image", lambda: rx.predict.nll(LOG_PROBS[0], LABELS), "log-probabilities"
    ),
    refused("predict: no bins", lambda: rx.predict.reliability(LOG_PROBS, LABELS, 0), "num_bins"),
    refused(
        "predict: half a bin", lambda: rx.predict.reliability(LOG_PROBS, LABELS, 1.5), "num_bins"
    ),  # type: ignore
    refused("predict: no scores", lambda: rx.predict.auroc([], [1.0]), "scores"),
    refused("predict: scores nan", lambda: rx.predict.auroc([NAN], [1.0]), "scores"),
    refused("predict: scores in words", lambda: rx.predict.auroc(["a"], [1.0]), "scores"),
    *crossed(
        "predict",
        lambda **o: rx.predict.nll(LOG_PROBS, LABELS, **o),
        ("reduce",),
        NOT_NAMES,
    ),
    refused("rhat: one chain's draws", lambda: rx.diagnostics.rhat(np.zeros(5)), "values"),
    refused("rhat: in words", lambda: rx.diagnostics.rhat("a"), "values"),  # type: ignore
    refused(
        "effective_size: a table of tables",
        lambda: rx.diagnostics.effective_size(np.zeros((2, 3, 4))),
        "values",
    ),
    refused("rhat: an object", lambda: rx.diagnostics.rhat(Thing()), "values"),  # type: ignore
]
MEANT = [
    Meant(
        "resume: as many steps as before",
        lambda: resume(num_steps=20),
        "the finished run comes back",
        lambda posterior: posterior.num_steps == 20 and posterior.num_draws == 16,
    ),
    Meant(
        "draws_at: rung 0",
        lambda: run().draws_at(0),
        "the draws of the target",
        lambda draws: draws.shape == (1, 16, 2),
    ),
]
ROWS = [*RESUMED, *POSTERIOR, *PREDICTIONS, *MEANT]
