"""Arguments of the program `replicax`: messages name the option as it is written there."""

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

from bad_inputs import Meant, Refused
from replicax.cli.main import main

_FOLDER = tempfile.TemporaryDirectory(prefix="replicax-bad-inputs-")
MODEL = Path(_FOLDER.name) / "bad_inputs_model.py"
MODEL.write_text("""
import jax.numpy as jnp

params = jnp.zeros(2)
rows = ["a", "b"]


def energy(x):
    return jnp.sum(x**2)


def branches(x):
    return x[0] if x[0] > 0 else -x[0]


def needs_rows(x, rows):
    return jnp.sum(x) + jnp.mean(rows)
""")
OUT = Path(_FOLDER.name) / "out"
STAR = ("--method", "deo-star", "--learning-rate")


def run(*args: Any) -> str:
    """Run a command; what it prints about wrong input is raised."""
    errors, output = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
        code = main([str(arg) for arg in args])
    if code == 2:
        raise ValueError(errors.getvalue().rstrip("\n"))
    assert code == 0, errors.getvalue()
    return output.getvalue()


def row(words: str, *args: Any) -> Refused:
    name = " ".join(str(arg) for arg in args).replace(_FOLDER.name, "FOLDER")
    return Refused(f"replicax {name}", lambda: run(*args), tuple(words.split()))


def sample(words: str, *args: Any) -> Refused:
    """A row of `replicax sample`, fine but for the arguments."""
    given = ("sample", f"{MODEL}:energy", "--out", OUT, *STAR, "0.01", "0.1")
    name = f"replicax sample model.py:energy {' '.join(str(a) for a in args)}"
    return Refused(name, lambda: run(*given, *args), tuple(words.split()))


def target(words: str, text: str, *args: Any) -> Refused:
    return Refused(
        f"replicax sample {text} {' '.join(args)}".replace(str(MODEL), "model.py"),
        lambda: run("sample", text, "--out", OUT, *args),
        tuple(words.split()),
    )


ROWS = [
    row("samlpe", "samlpe"),
    row("--replica", "plan", "--replica", "4"),
    row("--replicas", "plan", "--swap-rate", "0.4"),
    row("--replicas", "plan", "--replicas", "four", "--swap-rate", "0.4"),
    row("--replicas", "plan", "--replicas", "1", "--swap-rate", "0.4"),
    row("--swap-rate", "plan", "--replicas", "4", "--swap-rate", "2"),
    row("--swap-rate", "plan", "--replicas", "4", "--swap-rate", "nan"),
    row("--swap-rate", "plan", "--replicas", "4", "--swap-rate", "often"),
    row("--noise-std", "plan", "--replicas", "4", "--swap-rate", "0.4", "--noise-std", "loud"),
    row("--temperatures", "plan", "--replicas", "4", "--swap-rate", "0.4", "--noise-std", "1"),
    sample("--steps", "--steps", "0"),
    sample("--steps", "--steps", "many"),
    sample("--steps", "--steps", "1e3"),
    sample("--steps", "--steps", "99999999999"),
    sample("--replicas", "--replicas", "1"),
    sample("--replicas", "--replicas", "0"),
    sample("--replicas", "--replicas", "-4"),
    sample("--replicas memory", "--replicas", "1000000000"),
    sample("--chains", "--chains", "0"),
    sample("--swap-rate", "--swap-rate", "1"),
    sample("--swap-rate", "--swap-rate", "nan"),
    sample("--learning-rate", "--learning-rate", "fast"),
    sample("--learning-rate", "--learning-rate", "0"),
    sample("--learning-rate", "--learning-rate", "-0.1"),
    sample("--learning-rate", "--learning-rate", "nan"),
    sample("--learning-rate", "--learning-rate", "0.6", "0.003"),
    sample("--temperature", "--temperature", "hot"),
    sample("--temperature", "--temperature", "-1"),
    sample("--temperature", "--temperature", "2", "1"),
    sample("--temperature", "--rule", "metropolis"),
    sample("--window", "--window", "0"),
    sample("--window", "--steps", "10", "--window", "11"),
    sample("--window --schedule", "--schedule", "deo", "--window", "2"),
    sample("--schedule", "--schedule", "deo_stra"),
    sample("--rule", "--rule", "metropolos"),
    sample("--kernel", "--kernel", "hcm"),
    sample("--burn-in --steps", "--steps", "10", "--burn-in", "10"),
    sample("--burn-in", "--burn-in", "-1"),
    sample("--thin", "--thin", "0"),
    sample("--thin --steps", "--steps", "10", "--thin", "11"),
    sample("--seed", "--seed", str(2**70)),
    sample("--seed", "--seed", "x"),
    sample("--on-nonfinite", "--on-nonfinite", "stopp"),
    sample("--batch-size", "--batch-size", "3"),
    sample("nothing", "--batches", "nothing"),
    sample("nothing", "--params", "nothing"),
    sample("--batches", "--batches", "rows", "--batch-size", "1"),
    target("--method --learning-rate", f"{MODEL}:energy", "--learning-rate", "0.01", "0.1"),
    target("--method --learning-rate", f"{MODEL}:energy", "--method", "deo-star"),
    target("--method", f"{MODEL}:energy", "--method", "posterier"),
    target("model.py:energy", str(MODEL)),
    target("energi", f"{MODEL}:energi"),
    target("nowhere.py", "nowhere.py:energy"),
    target("nowhere", "nowhere:energy"),
    target("energy line", f"{MODEL}:branches", *STAR, "0.01", "0.1"),
    target("--batches", f"{MODEL}:needs_rows", *STAR, "0.01", "0.1"),
    row("nowhere", "resume", "nowhere"),
    row("nowhere", "summary", "nowhere"),
    row("nowhere", "plot", "nowhere"),
    row("nowhere", "report", "nowhere"),
    row("run", "summary", _FOLDER.name),
    row("--seed", "demo", "--seed", "x", "--out", OUT),
    row("--method", "train", "--method", "deo-stra", "--out", OUT),
    row("--data", "train", "--data", "digit", "--out", OUT),
    row("--model", "train", "--model", "resnet2O", "--out", OUT),
    row("--model", "train", "--model", "resnet21", "--out", OUT),
    row("--epochs", "train", "--epochs", "0", "--out", OUT),
    row("--replicas", "train", "--replicas", "0", "--out", OUT),
    row("--replicas", "train", "--method", "deo", "--replicas", "1", "--out", OUT),
    row("--weight-decay", "train", "--weight-decay", "-1", "--out", OUT),
    row("--temperature", "train", "--temperature", "-1", "--out", OUT),
    row("--learning-rate", "train", "--learning-rate", "0.3", "0.1", "--out", OUT),
    row("--learning-rate", "train", "--method", "ensemble", "--learning-rate", "0.1", "0.2"),
    row("--swap-rate", "train", "--swap-rate", "0", "--out", OUT),
    row("--burn-in --epochs", "train", "--epochs", "3", "--burn-in", "3", "--out", OUT),
    row("--batch-size", "train", "--batch-size", "100000", "--out", OUT),
    row("--on-swap", "train", "--on-swap", "kepe", "--out", OUT),
    row("nowhere", "train", "--init-from", "nowhere", "--out", OUT),
    row("--seed", "train", "--seed", str(2**70), "--out", OUT),
    Meant(
        "replicax plan with commas",
        lambda: run("plan", "--replicas", "4", "--swap-rate", "0.4", "--noise-std", "1,1,1",
                    "--temperatures", "1,10", "--json"),
        "as with blanks between the numbers",
        lambda output: '"num_replicas": 4' in output,
    ),
]  # fmt: skip
