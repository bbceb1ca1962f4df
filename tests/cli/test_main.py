import inspect
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer
from command_line import run_failing, run_json, strict_json
from typer.testing import CliRunner

import replicax as rx
from replicax import api
from replicax.cli import folders, output
from replicax.cli import main as cli
from replicax.cli.main import main
from replicax.run.storage.metadata import Metadata
from replicax.user_code import TargetSpec

REPOSITORY = Path(__file__).parents[2]
COMMANDS = ("demo", "plan", "sample", "resume", "summary", "plot")
MODEL = """
import jax.numpy as jnp
import numpy as np
import replicax as rx

print("the model is imported")
params = jnp.zeros(2)
elsewhere = {"w": jnp.ones(2)}
rows = np.linspace(-1.0, 1.0, 20)
fixed = 3

def energy(x):
    return jnp.sum((x**2 - 4) ** 2) / 8

def of_batch(x, batch):
    return jnp.sum((x - batch.mean()) ** 2)

def of_tree(tree):
    return jnp.sum(tree["w"] ** 2)

def far_away(x):
    return jnp.sum(jnp.where(jnp.abs(x) > 1, jnp.nan, -x**2 + 0.01 * x))

def broken(x):
    raise ValueError("It broke")

def scattered(key):
    import jax
    return jax.random.normal(key, (2,))

well = rx.Target(lambda x, batch, key: jnp.sum(x**2))
"""
QUICK = ("--learning-rate", "0.01", "0.1", "--replicas", "3", "--steps", "60")


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A target file in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)


def write_run(folder, structure, note=None):
    """Write as much of a run folder as commands read before they load the run."""
    Path(folder, "commits").mkdir(parents=True, exist_ok=True)
    Path(folder, "commits", "10.json").write_text("{}")
    Metadata("sample", {}, {}, {"structure": structure}, "", note=note or {}).write(Path(folder))


def run_program(*args):
    """Start the program in a new process."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "replicax", *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


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
    def seconds():
        began = time.perf_counter()
        process = run_program("--help")
        process.communicate()
        assert process.returncode == 0
        return time.perf_counter() - began

    assert min(seconds() for _ in range(5)) < 0.5


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from replicax.cli.main import main;"
        "main(['--help']); main(['sample', '--help']);"
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
    answer = run_json(capsys, "plan", "--replicas", 16, "--swap-rate", 0.4, "--params", 1000)
    assert (answer["window"], answer["window_exact"]) == (8, 7)
    for name in ("round_trip_time", "round_trips_per_1000_steps"):
        assert set(answer[name]) == {"adj", "seo", "deo", "deo_star"}
    assert answer["round_trip_time"]["deo"] == pytest.approx(752)
    assert answer["memory_bytes"] == 16 * 3 * 1000 * 4


@pytest.mark.parametrize("ends", [("1", "10"), ("1,10",), ("1", "4", "10")])
def test_plan_reads_several_numbers(capsys, ends):
    answer = run_json(capsys, "plan", "--replicas", 3, "--swap-rate", 0.4, "--noise-std", 3,
                   "--temperatures", *ends)  # fmt: skip
    assert answer["num_replicas_worth_having"]["corrected"]["num_replicas"] >= 1


def test_plan_is_a_table_for_people(capsys):
    assert main(["plan", "--replicas", "16", "--swap-rate", "0.4"]) == 0
    shown = capsys.readouterr().out
    assert "DEO*" in shown and "49.75" in shown


# sample, resume, summary, plot


def test_sample_resume_summary_plot(model, capsys, tmp_path, monkeypatch):
    options = "--batches rows --batch-size 5 --chains 2 --burn-in 10 --thin 5 --out run"
    sampled = run_json(capsys, "sample", "model.py:of_batch", *QUICK, *options.split())
    assert sampled["result"]["code"] == "finished"
    assert (sampled["num_steps"], sampled["num_replicas"], sampled["num_draws"]) == (60, 3, 10)
    assert sampled["run_dir"] == "run"
    assert strict_json(Path("run/summary.json").read_text()) == sampled

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "same batches again" in run_failing(capsys, "resume", "../run", "--batch-size", 4)
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
    options = ("--learning-rate", 0.05, 0.2, "--replicas", 3, "--out", "run", "--json")
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
        --chains 2 --burn-in 9 --thin 3 --seed 7 --no-adapt --energy-at before
        --on-nonfinite ignore --out run --no-progress
    """
    main(["sample", "model.py:of_tree", *options.split()])
    expected = {"num_replicas": 4, "num_steps": 40, "learning_rate": 0.01, "window": 5,
                "temperature": (1, 2, 3, 4), "target_swap_rate": 0.3, "rule": "metropolis",
                "schedule": "exactly-one", "kernel": "sghmc", "seed": 7, "adapt": False,
                "on_nonfinite": "ignore", "num_chains": 2, "burn_in": 9, "thin": 3,
                "energy_at": "before", "run_dir": Path("run"), "progress": False,
                "batches": None, "batch_size": None}  # fmt: skip
    assert {name: asked[name] for name in expected} == expected
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
    main(["sample", "model.py:energy", *options.split(), "--adapt-steps", "20"])
    assert (asked["num_replicas"], asked["learning_rate"]) == (num_replicas, rates)
    assert asked["adapt"] == 20 and asked["run_dir"] == Path("runs/energy-1")


def test_runs_get_folders_of_their_own(model):
    for number in (1, 2, 3):
        assert folders.new_run_folder(None, "well") == Path(f"runs/well-{number}")
        Path(f"runs/well-{number}").mkdir(parents=True)


def test_a_module_is_found_by_name_and_again_from_elsewhere(model, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("my_package").mkdir()
    Path("my_package/deep.py").write_text(MODEL + "batches, batch_size = rows, 5\nstart = 1.0\n")
    spec = TargetSpec.from_command_line("my_package.deep:well", "start")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    loaded = spec.load()
    assert isinstance(loaded.target, rx.Target) and loaded.params == 1.0
    assert loaded.batches.shape == (20,) and loaded.batch_size == 5


def test_a_target_can_be_named_again(model, capsys, asked):
    write_run("run", {"leaf": 0})
    assert "--target model.py:energy" in run_failing(capsys, "resume", "run")
    write_run("run", {"leaf": 0}, TargetSpec.from_command_line("moved.py:energy").to_note())
    assert "no file" in run_failing(capsys, "resume", "run")
    assert "not run" in run_failing(capsys, "resume", "run", "--target", "model.py:well")
    folder, target = asked["args"]
    assert folder == Path("run") and isinstance(target, rx.Target)
    assert TargetSpec.from_note(asked["note"]).name == "well"


def test_params_of_a_users_own_type_are_passed_again(model, capsys, asked):
    write_run("run", None)
    run_failing(capsys, "resume", "run", "--target", "model.py:energy", "--params", "scattered")
    assert asked["params"].shape == (2,)


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
        (["sample", "nowhere.to:energy", *QUICK], "There is no module 'nowhere.to'"),
        (["sample", "model.py:fixed", *QUICK], "give a function energy(params, batch, key)"),
        (["sample", "model.py:energy", *QUICK, "--params", "elsewere"], "'elsewhere'?"),
        (["sample", "model.py:energy", *QUICK, "--batches", "row"], "'rows'?"),
        (["sample", "model.py:energy", *QUICK, "--schedule", "deo_sta"], "'deo_star'?"),
        (["sample", "model.py:energy", *QUICK, "--kernel", "momentom"], "'momentum'?"),
        (["sample", "model.py:energy", *QUICK, "--rule", "metropolis"], "temperature"),
        (["sample", "model.py:energy", *QUICK, "--window", "0"], "window is 0"),
        (["sample", "model.py:energy", *QUICK, "--swap-rate", "2"], "(0, 1)"),
        (["sample", "model.py:energy", *QUICK, "--replicas", "1"], "replica"),
        (["sample", "model.py:energy", "--learning-rate", "0.3", "0.1"], "must not decrease"),
        (["sample", "model.py:energy", "--learning-rate", "-1"], "must be positive"),
        (["sample", "model.py:energy", "--learning-rate", "fast"], "--learning-rate is 'fast'"),
        (["sample", "model.py:energy", *QUICK, "--no-adapt", "--adapt-steps", "3"], "contradict"),
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


# Ctrl-C


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


# parts


def test_json_has_no_nan():
    value = {"a": np.array([1.0, np.nan]), "b": (np.float32(2), float("inf")), "c": Path("x")}
    assert strict_json(output.to_json(value)) == {"a": [1.0, None], "b": [2.0, None], "c": "x"}


def test_a_target_spec_is_read_as_it_was_written():
    spec = TargetSpec.from_command_line("replicax.demo:target", "params", None, 5)
    assert TargetSpec.from_note({"mine": 1, **spec.to_note()}) == spec
    assert TargetSpec.from_note({}) is None
