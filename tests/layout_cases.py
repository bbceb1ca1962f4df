"""The short runs of `layouts.py`, each a function of the devices; `CASES` has them by name."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

NUM_REPLICAS, NUM_CHAINS = 4, 2
NORMALISED = (3, 5)  # weights of a layer
IN_FOLDER = "in_folder"


def paper(devices: Any, **options: Any) -> Any:
    """The paper's recipe on the 25 modes, one replica a device at four."""
    from common import in_method

    import replicax as rx

    chosen = {
        "num_replicas": NUM_REPLICAS,
        "learning_rate": (0.003, 0.6),
        "num_steps": 400,
        "burn_in": 50,
    }
    return rx.sample(
        rx.targets.modes25(),
        rx.targets.modes25_start,
        devices=devices,
        progress=False,
        **in_method(chosen | options),
    )


def hmc(devices: Any, **options: Any) -> Any:
    """The defaults without a learning rate: step sizes and temperatures are tuned."""
    import jax.numpy as jnp

    import replicax as rx

    chosen = {"num_replicas": NUM_REPLICAS, "num_chains": NUM_CHAINS, "num_steps": 300}
    return rx.sample(
        lambda x: jnp.sum((x**2 - 4) ** 2) / 2,
        jnp.zeros(3),
        devices=devices,
        progress=False,
        **chosen | options,
    )


def network(devices: Any, **options: Any) -> Any:
    """A tiny network that swaps, with restarts of broken replicas."""
    from tiny_networks import EXCHANGING, LADDER, NETWORK, tiny_problem

    import replicax as rx

    method = rx.deo_star(**LADDER, temperature=1e-3)
    chosen = EXCHANGING | {"num_replicas": NUM_REPLICAS, "keep_networks": True, "method": method}
    return rx.train(tiny_problem(), NETWORK.init, devices=devices, **chosen | options)


def sequential(devices: Any) -> Any:
    """One pair after another, each judged on fresh energies."""
    return paper(devices, schedule="adj")


def rows(devices: Any) -> Any:
    """Mini-batches whose rows tell the noise of the energies."""
    import jax.numpy as jnp

    import replicax as rx

    data = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    return rx.sample(
        lambda x, batch: 40 * jnp.mean(jnp.sum((x - batch) ** 2, axis=1)),
        jnp.zeros(2),
        batches=data,
        batch_size=8,
        num_steps=200,
        num_replicas=NUM_REPLICAS,
        method=rx.deo_star(
            learning_rate=1e-3,
            temperature=(1.0, 4.0),
            rule="bias_corrected",
            swap_every=2,
            kernel="sghmc",
        ),
        devices=devices,
        progress=False,
    )


def broken(devices: Any) -> Any:
    """Hot replicas that break and restart from colder ones on other devices."""
    import jax.numpy as jnp

    import replicax as rx

    return rx.sample(
        lambda x: jnp.where(jnp.abs(x[0]) < 2.5, jnp.sum((x**2 - 1) ** 2), jnp.nan),
        jnp.zeros(2),
        num_steps=300,
        num_replicas=NUM_REPLICAS,
        num_chains=NUM_CHAINS,
        method=rx.deo_star(learning_rate=(0.01, 0.5), temperature=(0.5, 3.0), rule="metropolis"),
        on_nonfinite="restart",
        draw_rungs="all",
        devices=devices,
        progress=False,
    )


def normalised(devices: Any, **options: Any) -> Any:
    """A layer that is normalised over the mini-batch, as batch norm does; quick to compile."""
    import jax.numpy as jnp
    from common import in_method

    import replicax as rx

    def energy(weights: Any, rows: Any) -> Any:
        layer = rows @ weights
        layer = (layer - jnp.mean(layer, axis=0)) / (0.1 + jnp.std(layer, axis=0))
        return 40 * jnp.mean((jnp.sum(jnp.tanh(layer), axis=1) - rows[:, 0]) ** 2)

    chosen = {
        "num_replicas": NUM_REPLICAS,
        "num_steps": 20,
        "learning_rate": 1e-4,
        "temperature": (1.0, 4.0),
        "on_nonfinite": "stop",
    }
    return rx.sample(
        energy,
        0.5 * jnp.sin(jnp.arange(15.0)).reshape(NORMALISED),
        batches=np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32),
        batch_size=16,
        devices=devices,
        progress=False,
        **in_method(chosen | options),
    )


def regression(devices: Any, **options: Any) -> Any:
    """The mean of a Gaussian, known in closed form: 30 rows, mini-batches of 8, swaps judged on all
    rows; and with batch_size=None 30 at a time, which four devices cannot share evenly."""
    import jax.numpy as jnp

    import replicax as rx

    batch_size = options.pop("batch_size", 8)
    target = rx.bayesian(
        lambda mean, rows: -jnp.sum((rows - mean) ** 2, axis=1) / 2,
        lambda mean: -jnp.sum(mean**2) / 2,
        regression_rows(),
        batch_size=batch_size,
    )
    chosen = {"num_replicas": NUM_REPLICAS, "num_steps": 60, "burn_in": 20}
    return rx.sample(target, jnp.zeros(3), devices=devices, progress=False, **chosen | options)


def regression_rows() -> np.ndarray:
    return np.random.default_rng(1).normal(1.0, size=(30, 3)).astype(np.float32)


def law(devices: Any) -> Any:
    """All rows, for long enough to see mean and variance."""
    return regression(devices, batch_size=None, num_steps=3_000, burn_in=1_000, num_chains=2)


def in_folder(devices: Any) -> Any:
    """The paper's recipe with its records in a folder that all processes write into."""
    return paper(devices, run_dir=Path(sys.argv[1]) / IN_FOLDER, checkpoint_every=150)


def network_in_folder(devices: Any) -> Any:
    """Half of a network's epochs, in a folder."""
    stop = lambda now: "stop" if now.step >= 8 else None  # noqa: E731
    return network(devices, run_dir=Path(sys.argv[1]) / IN_FOLDER, callback=stop)


def network_resumed(devices: Any) -> Any:
    """The other half, on other devices."""
    import shutil

    from tiny_networks import tiny_problem

    import replicax as rx
    from replicax.run import processes

    folder, copy = Path(sys.argv[1]) / IN_FOLDER, Path(sys.argv[1]) / "copy"
    if processes.is_first():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
    processes.wait()
    return rx.resume(copy, tiny_problem(), devices=devices)


def killed(devices: Any) -> Any:
    """A network that ends after some epochs and goes on, on the same devices."""
    import tempfile

    from tiny_networks import tiny_problem

    import replicax as rx

    folder = tempfile.mkdtemp()
    network(devices, run_dir=folder, callback=lambda now: "stop" if now.step >= 6 else None)
    return rx.resume(folder, tiny_problem(), devices=devices)


def resumed(devices: Any) -> Any:
    """A run that begins on all devices and is continued on the given ones."""
    import tempfile

    import replicax as rx

    folder = tempfile.mkdtemp()
    paper("all", num_steps=150, run_dir=folder)
    return rx.resume(folder, rx.targets.modes25(), num_steps=400, devices=devices, progress=False)


CASES = {
    "paper": paper,
    "hmc": hmc,
    "network": network,
    "sequential": sequential,
    "rows": rows,
    "broken": broken,
    "normalised": normalised,
    "regression": regression,
    "law": law,
    "resumed": resumed,
    "killed": killed,
    "in_folder": in_folder,
    "network_in_folder": network_in_folder,
    "network_resumed": network_resumed,
}
