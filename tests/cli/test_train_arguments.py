"""What `replicax train` and `pretrain` make of their arguments, and where they look for data."""

import inspect
import sys
from pathlib import Path

import pytest
from command_line import run_failing
from shades_model import MODEL, TASK
from typer.testing import CliRunner

import replicax as rx
from replicax.cli import main as cli
from replicax.cli.main import main
from replicax.networks import train as train_module
from replicax.networks.by_name import DEFAULTS, NamedProblem
from replicax.networks.train import train


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a model."""
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def asked(here, monkeypatch):
    """The arguments of `train`; it does not run."""
    arguments = {}

    def note(*args, **kwargs):
        arguments.update(kwargs, args=args)
        raise ValueError("not run")

    monkeypatch.setattr(train_module, "train", note)
    return arguments


@pytest.mark.parametrize("command", ["train", "predict"])
def test_help_explains_and_gives_an_example(command):
    result = CliRunner().invoke(cli.app, [command, "--help"])
    assert result.exit_code == 0
    assert f"  replicax {command}" in result.stdout.split("Options:")[0]


def test_options_reach_the_training(asked):
    options = """
        --method deo --replicas 4 --epochs 7 --learning-rate 0.01 0.1 --swap-rate 0.2
        --window 5 --temperature 0.5 --cycle-epochs 9 --burn-in 2 --on-swap reset
        --keep-networks --seed 7 --out elsewhere --no-progress
        --weight-decay 0.01 --kernel sgld --rate-schedule cosine --warmup-epochs 1
        --clip-norm 2 --no-adapt --validation 8
    """
    main(["train", *TASK, *options.split()])
    expected = {"num_replicas": 4, "epochs": 7, "burn_in": 2, "keep_networks": True, "seed": 7,
                "progress": False, "run_dir": Path("elsewhere")}  # fmt: skip
    assert {name: asked[name] for name in expected} == expected
    assert asked["method"] == rx.deo(
        learning_rate=(0.01, 0.1), target_swap_rate=0.2, window=5, temperature=0.5, kernel="sgld",
        rate_schedule="cosine", warmup_epochs=1, clip_norm=2, adapt=False, cycle_epochs=9,
        on_swap="reset",
    )  # fmt: skip
    problem, _ = asked.pop("args")
    assert (problem.num_rows, problem.steps_per_epoch) == (24, 3)
    assert asked["note"]["task"]["weight_decay"] == 0.01
    assert asked["note"]["task"]["model"] == str(Path("model.py").absolute()) + ":dense"
    assert set(asked) <= set(inspect.signature(train).parameters)


def test_digits_have_defaults_of_their_own(asked):
    pytest.importorskip("sklearn")
    main(["train"])
    assert asked["method"] == rx.deep_ensemble()
    assert asked["run_dir"] == Path("runs/deep-ensemble-1")
    asked.clear()
    main(["train", "--method", "deo-star"])
    usual = DEFAULTS["digits"]
    for name in ("num_replicas", "epochs", "burn_in"):
        assert asked[name] == usual[name]
    rates = {name: usual[name] for name in ("learning_rate", "target_swap_rate")}
    assert asked["method"] == rx.deo_star(**rates)
    assert asked["args"][0].batches.batch_size == usual["batch_size"]
    assert asked["run_dir"] == Path("runs/deo-star-1")
    asked.clear()
    main(["train", "--method", "ensemble"])
    assert asked["method"].learning_rate is None  # a pair means nothing without a ladder


def test_what_is_given_wins_over_the_defaults_of_the_data(asked):
    """Also where it is the default of `rx.train` itself."""
    pytest.importorskip("sklearn")
    main(["train", "--replicas", "10", "--epochs", "500", "--burn-in", "0"])
    assert (asked["num_replicas"], asked["epochs"], asked["burn_in"]) == (10, 500, 0)


def test_pretrain_has_its_own_defaults(asked):
    main(["train", "--method", "pretrain", *TASK])
    assert (asked["epochs"], asked["method"]) == (300, rx.pretrain(0.1))
    assert "burn_in" not in asked


def test_a_missing_archive_is_told_with_the_remedy(here, capsys, tmp_path):
    options = ["--data", "cifar100", "--data-dir", str(tmp_path / "none")]
    message = run_failing(capsys, "train", *options)
    assert "none holds no cifar-100-python.tar.gz. Put it there (from https://" in message
    assert "name its folder (--data-dir), or write --download" in message


def test_a_damaged_archive_is_told_with_its_checksum(here, capsys, tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"not the archive")
    message = run_failing(capsys, "train", "--data", "cifar10", "--data-dir", tmp_path)
    assert "checksum" in message and "fetch it again" in message


def test_an_error_of_the_data_package_needs_no_traceback(here, capsys, tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"not the archive")
    assert "--traceback" not in run_failing(
        capsys, "train", "--data", "cifar10", "--data-dir", tmp_path
    )


def test_a_short_run_on_digits_has_an_average(asked):
    pytest.importorskip("sklearn")
    main(["train", "--epochs", "5"])
    assert asked["burn_in"] < 5


def test_the_folder_of_the_data_is_found_from_elsewhere(asked, monkeypatch):
    monkeypatch.setattr(NamedProblem, "problem", lambda self: (None, None))
    main(["train", "--data", "cifar10", "--data-dir", "archives"])
    assert Path(asked["note"]["task"]["data_dir"]).is_absolute()


def test_names_are_read_from_the_note_of_a_run_and_of_one_of_version_0_2():
    named = NamedProblem("mlp-4", "/rows.npz", batch_size=8, noise=0.5)
    note = named.to_note()
    assert NamedProblem.from_note({"mine": 1, **note}) == named
    assert NamedProblem.from_note({"task": {**note["task"], "unit": "mean"}}) == named
    assert NamedProblem.from_note({"task": "mine"}) is None
