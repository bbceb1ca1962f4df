"""The study of small networks: its quick version, its parts, and results that fail its bounds."""

import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from replicax import theory
from studies import networks
from studies.networks import NUM_REPLICAS, RATE, best_window
from studies.shared.runner import reproduce
from studies.shared.study import Cell, Results, Scale


def exchange(window: int, trips: list[float], rate: float = RATE, nll: float = 0.1) -> tuple:
    settings = {"kind": "exchange", "rate": rate, "window": window, "epochs": 100}
    pairs = np.full((len(trips), NUM_REPLICAS - 1), rate)
    ones = np.ones(len(trips))
    record = {
        "trips": np.array(trips), "verdict_rate": pairs, "window_swap_rate": pairs,
        "buffer": ones, "accuracy": 0.9 * ones, "nll": nll * ones, "single_accuracy": 0.8 * ones,
        "single_nll": ones,
    }  # fmt: skip
    return Cell(f"S={rate:g}-W={window}", settings), record


def noise(alone: np.ndarray, pair: np.ndarray) -> tuple:
    rates = np.geomspace(0.01, 0.32, len(alone))
    record = {"learning_rate": rates[None], "energy": alone[None], "std": alone[None],
              "difference_std": pair[None]}  # fmt: skip
    return Cell("noise", {"kind": "noise", "epochs": 100}), record


def results_of(at_one: float = 5.0, at_best: float = 9.0, grows: float = 2.0) -> Results:
    best = best_window(RATE)
    cells = [exchange(1, [at_one] * 3), exchange(best, [at_best] * 3), exchange(4 * best, [2.0])]
    cells.append(exchange(best_window(0.3), [1.0], rate=0.3, nll=0.05))
    alone = np.linspace(0.1, 0.1 * grows, 6)
    return Results([*cells, noise(alone, 0.1 * alone[1:])])


def verdicts(results: Results) -> dict[str, bool | None]:
    return {finding.what: finding.met for finding in networks.findings(results)}


def test_findings_are_judged_by_their_bounds() -> None:
    assert False not in verdicts(results_of()).values()
    assert list(verdicts(results_of()).values()).count(True) == 5
    fewer = verdicts(results_of(at_one=9.0, at_best=5.0))
    assert fewer[f"trips at W = {best_window(RATE)} over trips at W = 1"] is False
    shrinks = verdicts(results_of(grows=0.5))
    assert [what for what, met in shrinks.items() if met is False] == [
        "energy noise at learning rate 0.32 over that at 0.01"
    ]


def test_the_best_rate_is_the_one_with_the_lowest_nll() -> None:
    ours = {f.what: f.ours for f in networks.findings(results_of())}
    assert ours["S with the lowest NLL of the average"].startswith("0.3: 0.05")


def test_lemma_1_per_100_epochs() -> None:
    steps = networks.problem()[0].steps_per_epoch
    assert steps == networks.STEPS_PER_EPOCH
    assert networks.problem()[0].num_rows == networks.NUM_ROWS
    expected = 100 * steps * NUM_REPLICAS / theory.round_trip_time(0.9, 27, NUM_REPLICAS)
    assert networks.lemma(27) == pytest.approx(float(expected))
    assert networks.lemma(27, np.full(NUM_REPLICAS - 1, 0.1)) == pytest.approx(float(expected))
    assert best_window(0.1) == 27


def test_colder_posteriors_ask_for_more_replicas() -> None:
    rows = networks.replica_counts(results_of())
    counts = [[int(cell.split()[0]) for cell in row[1:]] for row in rows]
    for warm, cold in itertools.pairwise(counts):
        assert all(a <= b for a, b in zip(warm, cold, strict=True))
    assert all(alone >= pair for alone, pair in counts)
    assert counts[-1][0] > counts[0][0]


def test_energies_of_one_network_are_the_same_and_their_noise_cancels() -> None:
    init = networks.problem()[1]
    one = init(jax.random.key(0))
    energies = networks.batch_energies(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), one), 5)
    assert energies.shape == (5, 2)
    np.testing.assert_allclose(energies[:, 0], energies[:, 1], rtol=1e-5)
    assert energies[:, 0].std() > 1e-3


def test_cells_share_the_one_at_both_rate_and_window() -> None:
    cells = networks.cells(Scale())
    assert len({cell.name for cell in cells}) == len(cells) == 8
    same = [cell for cell in cells if cell.settings.get("window") == best_window(RATE)]
    assert [cell.settings["rate"] for cell in same] == [RATE]


@pytest.mark.slow
def test_the_quick_version(tmp_path: Path) -> None:
    summary: dict[str, Any] = reproduce(networks.STUDY, tmp_path, Scale(quick=True), progress=False)
    assert [f["what"] for f in summary["findings"] if f["met"] is False] == []
    assert [f["met"] for f in summary["findings"]].count(True) == 2
    page = (tmp_path / "networks.md").read_text()
    assert "proportional to the learning rate" in page
    assert all((tmp_path / name).stat().st_size > 10_000 for name in summary["figures"])
