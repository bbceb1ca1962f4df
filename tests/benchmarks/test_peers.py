"""The race with other samplers says who is missing, counts modes, and writes its page."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import reference

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
sys.path[:0] = [str(ROOT / "benchmarks/truth"), str(ROOT / "benchmarks")]

import numpy_loop  # noqa: E402
import peers  # noqa: E402
import peers_page  # noqa: E402
import peers_table  # noqa: E402
from judge import judge  # noqa: E402
from page import write_page as write_truth  # noqa: E402
from targets import TARGETS  # noqa: E402

OTHERS = ("numpyro", "tensorflow_probability", "blackjax")


@pytest.mark.slow
def test_the_race_runs_without_its_peers_and_says_so(tmp_path, monkeypatch, capsys):
    for package in OTHERS:
        monkeypatch.setitem(sys.modules, package, None)
        for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
            monkeypatch.setitem(sys.modules, name, None)
    samplers = [name for name in peers.RACERS if name != "replicax, DEO⋆"]
    given = ["--quick", "--targets", "modes-25", "--repeats", "1", "--no-networks"]
    peers.main([*given, "--out", str(tmp_path), "--samplers", *samplers])
    content, printed = json.loads((tmp_path / "peers.json").read_text()), capsys.readouterr().out
    runs = {run["sampler"]: run for run in content["runs"]}
    assert set(runs) == {"replicax", *samplers}
    for name, package in zip(
        ("NumPyro NUTS", "TFP ReplicaExchangeMC", "BlackJAX SGLD"), OTHERS, strict=True
    ):
        assert runs[name]["missing"] and f"this needs {package}; pip install" in runs[name]["error"]
    for name in ("replicax", "NumPy loop, DEO⋆"):
        assert runs[name]["seconds"] > 0 and runs[name]["iterations"] > 0
    page = (tmp_path / "peers.md").read_text()
    assert printed.count("not installed: ") == page.count("not installed: ") == 5
    assert (tmp_path / "peers-race.png").stat().st_size > 5_000


def made_up_run(sampler, seed=0, **changes):
    run = {
        "target": "twenty-modes", "sampler": sampler, "seed": seed, "passes": True,
        "modes_found": 20, "num_modes": 20, "mass_distance": 0.02, "mass_error": 0.01,
        "mean_error": 0.01,
        "sd_low": 0.98, "sd_high": 1.02, "warnings": [], "ess": 1000.0, "mode_ess": 500.0,
        "seconds": 2.0, "compile_seconds": 9.0, "iterations": 40_000,
    }  # fmt: skip
    return run | changes


def test_a_summary_has_the_worst_error_and_rates_seed_by_seed():
    runs = [
        made_up_run("replicax"), made_up_run("replicax", 1, seconds=4.0),
        made_up_run("peer", mode_ess=100.0),
        made_up_run("peer", 1, passes=False, modes_found=7, mean_error=0.4, compile_seconds=1.0),
    ]  # fmt: skip
    ours, peer = peers_table.summaries(runs)
    assert ours.is_right and ours.rate == peers_table.Spread(187.5, 125.0, 250.0)
    assert ours.micros == peers_table.Spread(75.0, 50.0, 100.0)
    assert (peer.right, peer.modes_found, peer.mean_error, peer.compile_seconds) == (1, 7, 0.4, 9)
    assert (peer.slower.low, peer.slower.high) == (0.5, 5.0)  # 125 / 250 and 250 / 50
    (line,) = peers_table.findings([ours, peer])
    assert "replicax is fastest, 188 effective" in line
    assert "Wrong: peer (1 of 2 right; 7 of 20 modes)" in line


def test_a_peer_that_wins_is_named_first():
    runs = [made_up_run("replicax"), made_up_run("peer", mode_ess=900.0)]
    (line,) = peers_table.findings(peers_table.summaries(runs))
    assert "peer is fastest, 450 effective draws per second; also right: replicax 250." in line


def test_the_page_is_that_of_the_stored_runs(tmp_path):
    content = json.loads((RESULTS / "peers.json").read_text())
    peers_page.write_page(content, tmp_path)
    assert (tmp_path / "peers.md").read_text() == (RESULTS / "peers.md").read_text()
    assert (tmp_path / "peers-race.png").stat().st_size > 20_000


def test_the_page_of_truths_is_that_of_the_stored_runs(tmp_path):
    stored = json.loads((RESULTS / "truth.json").read_text())
    write_truth(stored["runs"], stored["commands"], tmp_path, stored["machine"])
    assert (tmp_path / "truth.md").read_text() == (RESULTS / "truth.md").read_text()


def test_the_numpy_loop_takes_the_decisions_of_algorithm_1():
    """Held to the oracle of the tests, with the same random numbers."""
    steps, rng, rungs = 300, np.random.default_rng(0), numpy_loop.RUNGS
    rates = np.geomspace(0.003, 0.02, rungs)  # those of the paper are chaotic: rounding grows
    start = rng.uniform(-1, 1, (rungs, 2))
    of_gradient, of_energy = rng.standard_normal((steps, rungs, 2)), rng.normal(size=(steps, rungs))
    langevin = rng.standard_normal((steps, 2))
    record = reference.run(
        params=start,
        noise=reference.Noise(
            np.repeat(langevin[:, None], rungs, axis=1), of_gradient, of_energy
        ),
        gradient=lambda x, noise: numpy_loop.gradient(x) + 2.0 * noise,
        energy=lambda x, noise: numpy_loop.energy(x) + 2.0 * noise,
        learning_rate=rates,
        temperature=[1.0] + [0.0] * (rungs - 1),
        window=numpy_loop.WINDOW, adapt=True, target_swap_rate=numpy_loop.SWAP_RATE,
    )  # fmt: skip
    ladder = numpy_loop.Ladder(list(start), rates.copy())
    replica_at = np.arange(rungs)
    for k in range(steps):  # the loop stores noise by rung, the oracle by particle
        numpy_loop.advance(
            ladder, of_gradient[k][replica_at], langevin[k], of_energy[k][replica_at]
        )
        replica_at = np.argsort(record.rung_of[k])
        np.testing.assert_allclose(ladder.places, record.params[k][replica_at], atol=1e-9)
    np.testing.assert_allclose(ladder.rates, record.learning_rate[-1], rtol=1e-9)
    assert ladder.buffer == pytest.approx(record.buffer[-1])
    assert record.swapped.sum() > 50


def test_the_energy_of_the_numpy_loop_is_that_of_the_target():
    for place in np.random.default_rng(0).uniform(-5, 5, (20, 2)):
        assert numpy_loop.energy(place) == pytest.approx(
            float(TARGETS["modes-25"].bare(place)), abs=1e-3
        )


def test_chains_that_stay_in_their_modes_have_few_effective_draws():
    target, rng = TARGETS["chain-32"], np.random.default_rng(0)
    good = target.exact(rng, 400).reshape(4, 100, 32)
    apart = np.abs(good) * np.array([1, 1, -1, -1])[:, None, None]
    assert judge(target, good).modes_found == judge(target, apart).modes_found == 2
    assert judge(target, np.abs(good)).modes_found == 1
    assert judge(target, good).mode_ess > 100 > 10 > judge(target, apart).mode_ess
