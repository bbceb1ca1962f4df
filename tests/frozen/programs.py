"""Small programs whose compiled steps and draws are frozen: every method, kernel, rule and
schedule, trainings, and a run that was stopped and resumed."""

import hashlib
import json
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import optax
from tiny_networks import EXCHANGING, LADDER, NETWORK, tiny_problem

import replicax as rx

HERE = Path(__file__).parent
QUIET: dict[str, Any] = dict(progress=False, seed=3)
PLAIN = rx.nn.mlp(36, 3, hidden=(4,))  # without batch statistics
ROWS = np.random.default_rng(0).normal(1.0, 1.0, 40).astype(np.float32)


def wells(x):
    """Two wells of unequal depth."""
    return jnp.sum((x**2 - 1) ** 2) * 2 + 0.3 * jnp.sum(x)


def bowl(x):
    """A Gaussian: nothing is chaotic, and the last bits of adjusted moves stay the last ones."""
    return jnp.sum((x - 1) ** 2 * jnp.array([0.5, 2.0]))


def noisy_wells(x, rows):
    return wells(x) + 0.1 * jnp.mean((x[0] - rows) ** 2)


def keyed_wells(x, batch, key):
    return wells(x) + 0.1 * jax.random.normal(key)


def one_mean(params, rows):
    return -0.5 * (rows - params[0]) ** 2 - 0.1 * params[1] ** 2


def log_prior(params):
    return -jnp.sum(params**2) / 18


def start(key):
    return 1.5 * jax.random.normal(key, (2,))


def sampled(target: Any, **options: Any) -> Callable[[], Any]:
    chosen = dict(num_steps=60, num_replicas=4, num_chains=2) | QUIET | options
    return lambda: rx.sample(target, start, **chosen)


def paper(energy: Any = wells, schedule: str = "deo_star", **options: Any) -> Callable[[], Any]:
    """The paper's ladder, with another part or two."""
    chosen = dict(learning_rate=(0.003, 0.03), buffer=0.2) | options
    of_run = ("batches", "batch_size", "on_nonfinite", "num_steps", "run_dir", "callback")
    run = {name: chosen.pop(name) for name in of_run if name in chosen}
    return sampled(energy, method=rx.Method(schedule, schedule=schedule, **chosen), **run)


def trained(**options: Any) -> Callable[[], Any]:
    chosen = EXCHANGING | dict(seed=3, keep_networks=True) | options
    return lambda: rx.train(tiny_problem(), NETWORK.init, **chosen)


def alone(method: rx.Method, network: Any = NETWORK, **options: Any) -> Callable[[], Any]:
    """A training that is not the paper's ladder."""
    chosen = dict(epochs=4, num_replicas=3, keep_networks=True, method=method) | QUIET | options
    return lambda: rx.train(tiny_problem(network), network.init, **chosen)


def resumed(folder: Path) -> Any:
    """The case "deo_star", stopped and resumed."""
    stop = lambda progress: "stop" if progress.step >= 20 else None  # noqa: E731
    paper(run_dir=folder, callback=stop)()
    return rx.resume(folder, wells, progress=False)


CASES: dict[str, Callable[..., Any]] = {
    "hmc": sampled(bowl),
    "mala": sampled(bowl, method=rx.posterior("mala")),
    "all rows": sampled(rx.bayesian(one_mean, log_prior, ROWS)),
    "one replica": sampled(bowl, num_replicas=1),
    "metropolis, sgld": paper(rule="metropolis", temperature=(1.0, 8.0), learning_rate=0.003),
    "bias corrected, given noise": paper(
        rule=rx.swap.bias_corrected(0.1), temperature=(1.0, 8.0), learning_rate=0.003,
        energy=keyed_wells,
    ),
    "window corrected": paper(
        rule=rx.swap.window_corrected(0.2, 0.1), temperature=(1.0, 8.0), learning_rate=0.003,
        energy=keyed_wells, window=4,
    ),
    "deo_star": paper(schedule="deo_star"),
    "deo": paper(schedule="deo", window=1),
    "seo": paper(schedule="seo"),
    "adj": paper(schedule="adj"),
    "ape": paper(schedule="ape"),
    "exactly_one": paper(schedule="exactly_one", window=4),
    "no_gate": paper(schedule="no_gate", window=4),
    "none": paper(schedule="none"),
    "momentum, batches, before": paper(
        kernel="momentum", energy=noisy_wells, batches=ROWS, batch_size=8, energy_at="before",
        on_swap="reset", on_nonfinite="restart",
    ),
    "sghmc": paper(kernel="sghmc", buffer="auto", num_steps=160),
    "preconditioned": paper(kernel="preconditioned"),
    "optax": paper(kernel=optax.rmsprop(1.0)),
    "cyclical": paper(kernel=rx.kernels.cyclical(rx.kernels.sgld(), 20)),
    "training deo-star": trained(),
    "training deo": trained(method=rx.deo(**{**LADDER, "window": None})),
    "training ensemble, cosine": alone(rx.ensemble(0.05, rate_schedule="cosine")),
    "training sghmc-pt": alone(rx.sghmc_pt(0.01, swap_every=2, pretrain=0), PLAIN, burn_in=2),
    "training sgld": alone(rx.sgld(0.01, pretrain=0)),
    "training cyc-sghmc": alone(rx.cyc_sghmc(0.05, cycle_epochs=4, pretrain=0)),
    "training cyc-swag": alone(rx.cyc_swag(0.05, cycle_epochs=6, pretrain=0)),
    "training pretrain": alone(rx.pretrain(0.05)),
}  # fmt: skip

# Step sizes that are too long at first enlarge differences in the last bits: after so many steps
# other machines go other ways.
ROUNDED_AFTER = {"hmc": 16, "mala": 16, "all rows": 16, "one replica": 16}


def machine() -> str:
    """What decides the last bits of a run: the processor, its instructions and the compiler."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = platform.processor()
    lines = {line for line in text.splitlines() if line.startswith(("model name", "flags"))}
    about = "\n".join(sorted(lines)) + jaxlib.__version__
    return hashlib.sha256(about.encode()).hexdigest()[:16]


def observed(posterior: Any, folder: Path) -> dict[str, Any]:
    """What is frozen of a run whose lowered programs were dumped into `folder`."""
    draws = [np.asarray(leaf) for leaf in jax.tree.leaves(posterior.draws)]
    floats = np.concatenate([leaf.reshape(leaf.shape[0], -1)[:, -40:].ravel() for leaf in draws])
    digest = hashlib.sha256()
    for leaf in (*draws, np.asarray(posterior.rung_of)):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return {
        "program": program_digest(folder),
        "draws": digest.hexdigest()[:16],
        "rung_of": np.asarray(posterior.rung_of, np.int8),
        "floats": floats.astype(np.float32),
    }


def program_digest(folder: Path) -> str:
    """Return a digest of the lowered chunk of steps: operations without names and places."""
    texts = [path.read_text() for path in sorted(folder.glob("*jit_chunk*.mlir"))]
    assert texts, f"{folder} holds no program of a chunk"
    text = re.sub(r"@[\w.]+", "@f", texts[-1])  # names of functions mean nothing to XLA
    text = re.sub(r'jax\.result_info = "[^"]*"', "", text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stored() -> dict[str, Any]:
    path = HERE / "programs.json"
    return json.loads(path.read_text()) if path.exists() else {}
