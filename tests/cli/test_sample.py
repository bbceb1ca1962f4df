"""`replicax sample`, `resume`, `summary` and `plot`, and what Ctrl-C leaves of them."""

import inspect
import signal
import sys
import time
from pathlib import Path

import pytest
from command_line import QUICK, STAR, run_failing, run_json, run_program, strict_json, write_run
from targets_model import MODEL

import replicax as rx
from replicax import api
from replicax.cli import folders
from replicax.cli.main import main
from replicax.user_code import TargetSpec


def test_sample_resume_summary_plot(model, capsys, tmp_path, monkeypatch):
    options = "--batches rows --batch-size 5 --chains 2 --burn-in 10 --thin 5 --out run"
    sampled = run_json(capsys, "sample", "model.py:of_batch", *QUICK, *options.split())
    assert sampled["result"]["code"] == "finished"
    assert (sampled["num_steps"], sampled["num_replicas"], sampled["num_draws"]) == (60, 3, 10)
    assert sampled["run_dir"] == "run"
    assert strict_json(Path("run/summary.json").read_text()) == sampled

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "batches again" in run_failing(capsys, "resume", "../run", "--batch-size", 4)
    Path("../run/commits/60.json").write_text("{")
    assert main(["resume", "../run", "--steps", "100", "--json"]) == 0
    shown = capsys.readouterr()
    assert "The run goes back to step 0, which is whole." in " ".join(shown.err.split())
    resumed = strict_json(shown.out)
    assert resumed["num_steps"] == 100 and resumed["num_draws"] == 18
    summary = run_json(capsys, "summary", "../run")
    assert summary == {name: value for name, value in resumed.items() if name != "run_dir"}
    assert main(["resume", "../run"]) == 0  # nothing left to do
    shown = capsys.readouterr()
    assert "make it longer with --steps N" in shown.err and "All 100 steps were done." in shown.out

    plotted = []
    monkeypatch.setattr(rx.Posterior, "plot", lambda self, out: plotted.append(out) or {"a": None})
    assert main(["plot", "../run"]) == 0
    assert capsys.readouterr().out == "../run/figures/a.png\n"
    assert run_json(capsys, "plot", "../run", "--out", "here") == {"figures": ["here/a.png"]}
    assert plotted == [Path("../run/figures"), Path("here")]


def test_a_nonfinite_energy_has_its_own_exit_code(model, capsys):
    options = (*STAR, 0.05, 0.2, "--replicas", 3, "--out", "run", "--json")
    message = run_failing(capsys, "sample", "model.py:far_away", *options, code=3)
    assert "became nan at step" in message
    assert rx.load("run").num_draws > 0


@pytest.fixture
def asked(monkeypatch):
    """The arguments of `rx.sample` and `rx.resume`; neither runs."""
    arguments = {}

    def note(*args, **kwargs):
        arguments.update(kwargs, args=args)
        raise ValueError("not run")

    monkeypatch.setattr(rx, "sample", note)
    monkeypatch.setattr(rx, "resume", note)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return arguments


def test_options_reach_the_sampler(model, asked):
    options = """
        --params elsewhere --replicas 4 --steps 40 --learning-rate 0.01 --temperature 1 2 3 4
        --swap-rate 0.3 --schedule exactly-one --window 5 --rule metropolis --kernel sghmc
        --chains 2 --burn-in 9 --thin 3 --seed 7 --no-adapt --method deo --checkpoint-every 40
        --on-nonfinite ignore --out run --no-progress
    """
    main(["sample", "model.py:of_tree", *options.split()])
    expected = {"num_replicas": 4, "num_steps": 40, "seed": 7,
                "on_nonfinite": "ignore", "num_chains": 2, "burn_in": 9, "thin": 3,
                "run_dir": Path("run"), "progress": False, "checkpoint_every": 40,
                "batches": None, "batch_size": None}  # fmt: skip
    assert {name: asked[name] for name in expected} == expected
    assert asked["method"] == rx.deo(
        learning_rate=0.01, temperature=(1, 2, 3, 4), target_swap_rate=0.3, schedule="exactly-one",
        window=5, rule="metropolis", kernel="sghmc", adapt=False,
    )  # fmt: skip
    target, params = asked.pop("args")
    assert target.__name__ == "of_tree" and set(params) == {"w"}
    assert set(asked) <= set(inspect.signature(api.sample).parameters)


@pytest.mark.parametrize(
    "options, num_replicas, rates",
    [
        ("--learning-rate 0.01 0.1", 16, (0.01, 0.1)),
        ("--learning-rate 0.01,0.02,0.03", None, (0.01, 0.02, 0.03)),
        ("--learning-rate=0.01 0.02 0.03 --replicas 3", 3, (0.01, 0.02, 0.03)),
        ("--learning-rate 0.01 --temperature 1 2 4 8", None, 0.01),
    ],
)
def test_ladders_on_the_command_line(model, asked, options, num_replicas, rates):
    main(["sample", "model.py:energy", "--method", "deo-star", *options.split()])
    assert (asked.get("num_replicas"), asked["method"].learning_rate) == (num_replicas, rates)
    assert asked["run_dir"] == Path("runs/energy-1")


def test_without_a_method_draws_are_exact(model, asked):
    main(["sample", "model.py:energy", "--kernel", "mala"])
    assert asked["method"] == rx.posterior("mala") and "num_replicas" not in asked
    asked.clear()
    main(["sample", "model.py:energy", "--method", "posterior", "--learning-rate", "0.3"])
    assert asked["method"] == rx.posterior(learning_rate=0.3)


def test_options_left_out_are_left_to_the_method(model, asked):
    main(["sample", "model.py:energy", "--method", "sgld", "--learning-rate", "0.3"])
    assert asked["method"] == rx.sgld(0.3)


def test_runs_get_folders_of_their_own(model):
    for number in (1, 2, 3):
        assert folders.new_run_folder(None, "well") == Path(f"runs/well-{number}")
        Path(f"runs/well-{number}").mkdir(parents=True)


def test_a_file_is_found_again_from_elsewhere(model, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("my_package").mkdir()
    Path("my_package/deep.py").write_text(MODEL + "batches, batch_size = rows, 5\nstart = 1.0\n")
    spec = TargetSpec.from_command_line("my_package/deep.py:well", params="start")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    loaded = spec.load()
    assert isinstance(loaded.target, rx.Target) and loaded.params == 1.0
    assert loaded.batches.shape == (20,) and loaded.batch_size == 5


def test_a_target_can_be_named_again(model, capsys, asked):
    write_run("run", {"leaf": 0})
    assert "replicax resume run model.py:energy" in run_failing(capsys, "resume", "run")
    write_run("run", {"leaf": 0}, TargetSpec.from_command_line("moved.py:energy").to_note())
    assert "moved.py:energy" in run_failing(capsys, "resume", "run")
    assert "not run" in run_failing(capsys, "resume", "run", "model.py:well")
    folder, target = asked["args"]
    assert folder == Path("run") and isinstance(target, rx.Target)
    assert TargetSpec.from_note(asked["note"]).name == "well"


def test_params_of_a_users_own_type_are_passed_again(model, capsys, asked):
    write_run("run", None)
    run_failing(capsys, "resume", "run", "model.py:energy", "--params", "scattered")
    assert asked["params"].shape == (2,)


def test_ctrl_c_leaves_a_run_that_can_be_resumed(model, capsys):
    process = run_program("sample", "model.py:energy", *QUICK[:-1], "1000000000", "--thin", "20",
                          "--out", "run")  # fmt: skip
    deadline = time.monotonic() + 120
    while not Path("run/commits/0.json").exists():  # from now on signals are heard
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=120)
    assert process.returncode == 130, message
    assert "Traceback" not in message and "replicax resume run" in message
    stopped = rx.load("run")
    assert stopped.result.code == "interrupted" and stopped.num_steps > 0
    more = stopped.num_steps + 50
    assert run_json(capsys, "resume", "run", "--steps", more)["num_steps"] == more


def test_ctrl_c_outside_the_loop_is_a_sentence(monkeypatch, capsys):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "read_metadata", interrupt)
    assert "Interrupted" in run_failing(capsys, "summary", "run", code=130)
