"""Run folders of version 0.2: what each method left open is filled in as that version did."""

from pathlib import Path
from typing import Any

import pytest
from made_up_metadata import metadata_of

from replicax.run.methods import METHODS
from replicax.run.resolve import with_usual
from replicax.run.storage import files, metadata, upgrade
from replicax.run.storage.files import Damaged

OPTIONS: dict[str, Any] = {
    **dict.fromkeys(upgrade._METHOD),
    "num_steps": 90,
    "num_chains": 2,
    "burn_in": 30,
    "thin": 3,
    "seed": 5,
    "on_nonfinite": "stop",
    "draw_rungs": [0, 1],
    "keep_draws": True,
    "history_every": 9,
    "checkpoint_every": 7,
    "keep_checkpoints": 4,
    "swap_energy": "batch",
    "energy_at": "moved",
    "learning_rate": [0.1, 0.3],
    "schedule": "deo_star",
    "target_swap_rate": 0.3,
}
TRAINING: dict[str, Any] = {
    "epochs": 6,
    "num_replicas": 3,
    "burn_in": 2,
    "seed": 8,
    "keep_networks": False,
    "checkpoint_every": None,
    "keep_checkpoints": 2,
}
OPEN = ("energy_at", "target_swap_rate", "gain", "buffer", "buffer_gain")
IN_0_2 = ("deo-star", "deo", "sghmc-pt", "ensemble", "sgld", "cyc-sghmc", "cyc-swag", "pretrain")
RESOLVED = {"num_replicas": 4, "window": 11, "swap_energy": "batch", "more": 1}


def content(training: Any = None, unit: Any = None, **options: Any) -> dict[str, Any]:
    """A run.json of format 5."""
    made = {"options": OPTIONS | options, "resolved": RESOLVED, "batches": "arrays of 40 rows, 8 a"
            " batch", "kept": "as it is"}  # fmt: skip
    made |= {} if unit is None else {"unit": unit}
    return made | ({} if training is None else {"training": TRAINING | training})


def upgraded(*given: Any, **options: Any) -> dict[str, Any]:
    return upgrade.upgraded(Path("run.json"), content(*given, **options))


@pytest.mark.parametrize("name", IN_0_2)
def test_a_method_of_networks_is_what_it_still_is(name: str) -> None:
    """A version that changes a method says in `upgrade` what it was in 0.2."""
    found = upgraded({"method": name})
    today = with_usual(METHODS[name](**upgrade._KERNELS.get(name, {})), of_networks=True)
    ladder = found["method"]["learning_rate"]
    assert (tuple(ladder) if isinstance(ladder, list) else ladder) == today.learning_rate
    for part in upgrade._NETWORKS:
        if part not in ("learning_rate", "name", "window", *OPEN):
            assert found["method"][part] == getattr(today, part), part
    assert found["method"]["name"] == name and found["method"]["window"] == 11
    assert found["run"] == TRAINING | {
        "keep_averaged": 100,
        "evaluate": None,
        "hold_out": None,
        "early_stop": None,
        "on_nonfinite": "stop",
    }


def test_what_a_training_was_told_goes_before_what_is_usual() -> None:
    told = {"learning_rate": 0.7, "momentum": 0.5, "warmup_epochs": 2.0, "adapt": False}
    method = upgraded(told | {"method": "deo", "clip_norm": 1.5})["method"]
    assert {name: method[name] for name in told} == told and method["clip_norm"] == 1.5
    own = upgraded({"method": {"name": "mine", "averages": "all", "schedule": "seo"}})["method"]
    assert (own["name"], own["averages"], own["schedule"]) == ("mine", "all", "seo")
    assert own["kernel"] == "momentum" and own["learning_rate"] == 0.005


def test_a_sampling_keeps_its_options_and_names_its_method() -> None:
    found = upgraded()
    assert found["run"]["num_replicas"] == 4 and "num_replicas" not in OPTIONS
    assert len(found["run"]) == 12
    for name in found["run"].keys() - {"num_replicas"}:
        assert found["run"][name] == OPTIONS[name]
    moves = {"jumps": 0, "redraws": 0, "draws_per_step": 1}  # as they were
    method = found["method"]
    for name, usual in (upgrade._OPEN | moves).items():
        if name not in (*OPTIONS, "name", "window"):
            assert method[name] == usual, name
    assert (method["name"], method["window"], method["energy_at"]) == ("deo-star", 11, "moved")
    assert method["target_swap_rate"] == 0.3 and method["learning_rate"] == [0.1, 0.3]
    resolved = found["resolved"]
    assert resolved["more"] == 1 and "swap_energy" not in resolved
    assert (resolved["energy_at"], resolved["num_steps"], resolved["thin"]) == ("batch", 90, 3)
    assert found["kept"] == "as it is" and found["gone"] == {}
    assert found["batches"] == {"kind": "arrays", "num_rows": 40, "batch_size": 8}
    assert not {"options", "training", "unit"} & found.keys()


@pytest.mark.parametrize(
    ("options", "name", "energy_at"),
    [
        ({"learning_rate": "auto"}, "posterior", "moved"),
        ({"temperature": "auto", "energy_at": "before"}, "posterior", "before"),
        ({"schedule": {"own": 1}}, "own schedule", "moved"),
        ({"swap_energy": "full"}, "deo-star", "all_rows"),
    ],
)
def test_words_of_0_2_in_those_of_today(options: dict, name: str, energy_at: str) -> None:
    method = upgraded(**options)["method"]
    assert (method["name"], method["energy_at"]) == (name, energy_at)


@pytest.mark.parametrize(
    ("told", "gone"),
    [
        ({"average_rungs": 1, "settle_epochs": 0.0, "track_best": False}, {}),
        ({"average_rungs": 2}, {"average_rungs": 2}),
        ({"settle_epochs": 1.0, "track_best": True}, {"settle_epochs": 1.0, "track_best": True}),
        ({"rate_schedule": "arrival"}, {"rate_schedule": "arrival"}),
    ],
)
def test_options_that_are_gone_are_told_where_they_changed_something(
    told: dict, gone: dict
) -> None:
    assert upgraded(told | {"method": "deo"})["gone"] == gone


def test_units_and_numbers_as_swap_energy_are_gone() -> None:
    assert upgraded({"method": "deo"}, unit="total")["gone"] == {"unit": "total"}
    assert upgraded({"method": "deo"}, unit="mean")["gone"] == {}
    assert upgraded(swap_energy=3)["gone"] == {"swap_energy": 3}


@pytest.mark.parametrize("lost", ["options", "resolved", "batches"])
def test_an_entry_that_is_missing_is_damage(lost: str) -> None:
    rest = content()
    rest.pop(lost)
    with pytest.raises(Damaged, match="run.json is damaged"):
        upgrade.upgraded(Path("run.json"), rest)
    with pytest.raises(Damaged):
        upgraded({"method": "unheard of"})


def test_each_format_is_brought_up_to_date_by_its_own_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of format 5 both, of format 6 the second, of today's none; others are refused."""
    made = metadata_of()
    made.write(tmp_path)
    today = files.read_json(tmp_path / metadata.FILE)
    del today["digest"]
    taken: list[str] = []
    for name in ("upgraded", "with_own_digest"):
        step = lambda *content, name=name: taken.append(name) or content[-1]  # noqa: E731
        monkeypatch.setattr(metadata, name, step)
    latest = metadata.FORMAT_VERSION
    for version in range(5, latest + 1):
        taken.clear()
        files.write_json(tmp_path / metadata.FILE, today | {"format_version": version})
        assert metadata.read_metadata(tmp_path).params == made.params
        assert ("upgraded" in taken) == (version == 5)
        assert ("with_own_digest" in taken) == (version < 7)
    for version in (4, latest + 1):
        files.write_json(tmp_path / metadata.FILE, today | {"format_version": version})
        with pytest.raises(ValueError, match=f"has format version {version}"):
            metadata.read_metadata(tmp_path)


def test_a_correction_that_a_run_found_itself_is_gone_and_one_that_was_given_stays() -> None:
    def read(**rule: Any) -> dict[str, Any]:
        stages = {"reference_steps": None, "tuning_steps": None, "energy_noise_std": 2.0}
        method = {"name": "deo-star", "rule": {"WindowCorrected": stages | rule}}
        return upgrade.with_options_of_today({"method": method, "gone": {"swap_energy": 7}})

    given = read(window_correction=0.5)
    kept = {"energy_noise_std": 2.0, "window_correction": 0.5}
    rule = {"WindowCorrected": kept}
    assert given["method"] == {"name": "deo-star", "rule": rule, "exact": True}
    assert given["gone"] == {"swap_energy": 7}
    found = read(window_correction=None, reference_steps=30)
    assert found["gone"] == {"swap_energy": 7, "window_correction": "auto"}
    assert found["method"]["rule"]["WindowCorrected"] == kept | {"window_correction": 0.0}
    for other in ({}, {"method": None}, {"method": {"rule": "metropolis", "exact": False}}):
        assert upgrade.with_options_of_today(other) == other
