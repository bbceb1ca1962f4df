"""`rx.resume` continues runs of `rx.sample` and of `rx.train`, and asks each for what it needs."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from tiny_networks import EXCHANGING, NETWORK, tiny_problem

import replicax as rx

PLAIN = """
import sys, warnings
import jax.numpy as jnp, replicax as rx
warnings.simplefilter("ignore")
bowl = lambda x: jnp.sum(x**2)
options = dict(num_replicas=2, run_dir=sys.argv[1], progress=False, method=rx.deo((0.1, 0.2)))
rx.sample(bowl, jnp.zeros(1), num_steps=20, **options)
assert rx.resume(sys.argv[1], bowl, num_steps=30, progress=False).num_steps == 30
assert rx.load(sys.argv[1]).num_steps == 30
print(*[name for name in sys.modules if name.startswith("replicax.networks")])
"""


def test_a_run_without_networks_is_continued_without_their_code(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLAIN, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_run_takes_what_belongs_to_its_kind(tmp_path: Path) -> None:
    bowl = lambda x: jnp.sum(x**2)  # noqa: E731
    options: dict[str, Any] = {"num_steps": 20, "num_replicas": 2}
    options["method"] = rx.posterior(jumps=0)
    rx.sample(bowl, jnp.zeros(1), run_dir=tmp_path / "s", **options)
    rx.train(tiny_problem(), NETWORK.init, **EXCHANGING | {"epochs": 1}, run_dir=tmp_path / "t")
    of_trainings: list[dict[str, Any]] = [{"epochs": 3}, {"evaluate": print}]
    for given in of_trainings:
        told = f"made by rx.sample, which has no {next(iter(given))}: .*num_steps"
        with pytest.raises(ValueError, match=told):
            rx.resume(tmp_path / "s", bowl, **given)
    with pytest.raises(
        ValueError, match='method "deo" is given, but .* its own, "posterior": leave out method'
    ):
        rx.resume(tmp_path / "s", bowl, method="deo")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="made by rx.train.*epochs=..."):
        rx.resume(tmp_path / "t", tiny_problem(), num_steps=30)
    with pytest.raises(ValueError, match="made by rx.train"):
        rx.resume(tmp_path / "t", bowl)
    longer: Any = rx.resume(tmp_path / "t", tiny_problem(), epochs=2, progress=False)
    assert longer.num_epochs == 2
