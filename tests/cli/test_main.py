"""The command line as a whole: help, plans, wrong input."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from command_line import (
    QUICK,
    REPOSITORY,
    STAR,
    run_failing,
    run_json,
    run_program,
    strict_json,
    write_run,
)
from typer.testing import CliRunner

import replicax as rx
from replicax.cli import main as cli
from replicax.cli import output
from replicax.cli.main import main
from replicax.user_code import TargetSpec

COMMANDS = ("demo", "plan", "sample", "resume", "summary", "plot")


# help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_and_gives_an_example(command):
    result = CliRunner().invoke(cli.app, [command, "--help"])
    assert result.exit_code == 0
    assert f"  replicax {command}" in result.stdout.split("Options:")[0]


def test_help_names_all_commands_and_is_shown_without_arguments(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {command} " in shown for command in COMMANDS)
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == shown


def test_help_of_sample_says_the_exit_codes(capsys):
    main(["sample", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "0 finished; 2 wrong input; 3 an energy became non-finite" in shown
    assert "130 stopped with Ctrl-C" in shown


def test_help_comes_in_half_a_second():
    def used():  # of the processor: a busy machine does not make it longer
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    def seconds():
        began = used()
        process = run_program("--help")
        process.communicate()
        assert process.returncode == 0
        return used() - began

    assert min(seconds() for _ in range(5)) < 0.5


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from replicax.cli.main import main;"
        "main(['--help']); main(['sample', '--help']); main(['train', '--help']);"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    shown = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
    imported = set(shown.splitlines()[-1].split())
    assert "typer" in imported
    assert not imported & {"jax", "numpy", "scipy", "matplotlib", "xarray", "rich", "orbax"}


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"replicax {rx.__version__}\n"


# plan


def test_plan_prints_the_keys_that_others_rely_on(capsys):
    answer = run_json(capsys, "plan", "--replicas", 16, "--swap-rate", 0.4)
    assert (answer["window"], answer["window_exact"]) == (8, 7)
    for name in ("round_trip_time", "round_trips_per_1000_steps"):
        assert set(answer[name]) == {"adj", "seo", "deo", "deo_star"}
    assert answer["round_trip_time"]["deo"] == pytest.approx(752)


@pytest.mark.parametrize("ends", [("1", "10"), ("1,10",), ("1", "4", "10")])
def test_plan_reads_several_numbers(capsys, ends):
    answer = run_json(capsys, "plan", "--replicas", 3, "--swap-rate", 0.4, "--noise-std", 3,
                   "--temperatures", *ends)  # fmt: skip
    assert answer["num_replicas_worth_having"]["corrected"]["num_replicas"] >= 1


def test_plan_is_a_table_for_people(capsys):
    assert main(["plan", "--replicas", "16", "--swap-rate", "0.4"]) == 0
    shown = capsys.readouterr().out
    assert "DEO*" in shown and "49.75" in shown


# wrong input


@pytest.mark.parametrize(
    "args, sentence",
    [
        (["sampel"], "Did you mean 'sample'?"),
        (["plan", "--replicas", "16"], "Missing option '--swap-rate'. See `replicax plan --help`."),
        (["plan", "--replicas", "many", "--swap-rate", "0.4"], "'--replicas'"),
        (["plan", "--replicas", "1", "--swap-rate", "0.4"], "at least 2"),
        (["plan", "--replicas", "16", "--swap-rate", "1.4"], "between 0 and 1"),
        (["sample", "model.py:enrgy", *QUICK], "Did you mean 'energy'?"),
        (["sample", "modle.py:energy", *QUICK], "Did you mean 'model.py'?"),
        (["sample", "model.py", *QUICK], "it defines energy, of_batch"),
        (["sample", "nowhere.to:energy", *QUICK], "/nowhere.to."),
        (["sample", "model.py:fixed", *QUICK], "give a function energy(params, batch, key)"),
        (["sample", "model.py:energy", *QUICK, "--params", "elsewere"], "'elsewhere'?"),
        (["sample", "model.py:energy", *QUICK, "--batches", "row"], "'rows'?"),
        (["sample", "model.py:energy", *QUICK, "--schedule", "deo_sta"], "'deo_star'?"),
        (["sample", "model.py:energy", *QUICK, "--kernel", "momentom"], "'momentum'?"),
        (["sample", "model.py:energy", *QUICK, "--rule", "metropolis"], "temperature"),
        (["sample", "model.py:energy", *QUICK, "--window", "0"], "--window is 0"),
        (["sample", "model.py:energy", *QUICK, "--swap-rate", "2"], "(0, 1)"),
        (["sample", "model.py:energy", *QUICK, "--replicas", "1"], "replica"),
        (["sample", "model.py:energy", *STAR, "0.3", "0.1"], "must not decrease"),
        (["sample", "model.py:energy", *STAR, "-1"], "must be positive"),
        (["sample", "model.py:energy", *STAR, "fast"], "--learning-rate is 'fast'"),
        (["sample", "model.py:energy", *QUICK[2:]], "write --method deo-star --learning-rate 0.01"),
        (["sample", "model.py:energy", "--method", "deo"], "write --method deo --learning-rate"),
        (["sample", "model.py:energy", "--method", "deo-stra"], "Did you mean 'deo-star'?"),
        (["summary", "nothing"], "There is no folder nothing"),
        (["plot", "."], "not a run folder: there is no run.json"),
        (["resume", "model.py"], "not a run folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(model, capsys, args, sentence):
    assert sentence in run_failing(capsys, *args)
    assert not Path("runs").exists()


def test_the_line_is_red(monkeypatch):
    printed = []
    monkeypatch.setattr(typer, "secho", lambda text, **how: printed.append((text, how)))
    assert main(["summary", "nothing"]) == 2
    ((_, how),) = printed
    assert how == {"fg": "red", "err": True}


def test_a_file_without_a_start_is_told_how_to_give_one(model, capsys):
    Path("bare.py").write_text("def energy(x):\n    return (x**2).sum()\n")
    assert "params = jnp.zeros(2)" in run_failing(capsys, "sample", "bare.py:energy", *QUICK)


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("x = 1\ny = x + z\n", "NameError: name 'z' is not defined (line 2 of"),
        ("import not_installed\n", "No module named 'not_installed' (line 1 of"),
        ("def energy(x:\n", "SyntaxError"),
    ],
)
def test_a_file_that_does_not_run_says_where(model, capsys, text, sentence):
    Path("broken.py").write_text(text)
    assert sentence in run_failing(capsys, "sample", "broken.py:energy", *QUICK)


def test_traceback_on_request(model, capsys):
    for args in (["--traceback", "summary", "absent"], ["summary", "absent", "--traceback"]):
        with pytest.raises(ValueError, match="no folder"):
            main(args)
    assert "--traceback" not in run_failing(capsys, "summary", "absent")
    line = run_failing(capsys, "sample", "model.py:broken", *QUICK)
    assert "of model.py `raise ValueError" in line and "It broke." in line


@pytest.mark.parametrize("text, sentence", [("{", "is damaged"), ("{}", "not written by replicax")])
def test_a_run_file_that_replicax_did_not_write(tmp_path, capsys, text, sentence):
    (tmp_path / "run.json").write_text(text)
    for command in ("summary", "plot", "resume"):
        assert sentence in run_failing(capsys, command, tmp_path)


def test_runs_are_not_overwritten_and_the_right_folder_is_suggested(model, capsys):
    write_run("runs/well-1", {"leaf": 0})
    message = run_failing(capsys, "sample", "model.py:well", *QUICK, "--out", "runs/well-1")
    assert "`replicax resume runs/well-1`" in message
    assert "It contains runs: runs/well-1" in run_failing(capsys, "summary", "runs")
    assert "Did you mean 'runs/well-1'?" in run_failing(capsys, "summary", "runs/wel-1")


# parts


def test_json_has_no_nan():
    value = {"a": np.array([1.0, np.nan]), "b": (np.float32(2), float("inf")), "c": Path("x")}
    assert strict_json(output.to_json(value)) == {"a": [1.0, None], "b": [2.0, None], "c": "x"}


def test_a_target_spec_is_read_as_it_was_written():
    spec = TargetSpec.from_command_line("replicax.demo:target", params="params", batch_size=5)
    assert TargetSpec.from_note({"mine": 1, **spec.to_note()}) == spec
    assert TargetSpec.from_note({}) is None
