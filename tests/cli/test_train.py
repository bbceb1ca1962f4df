"""`replicax train`, `pretrain`, and the other commands on the folders of networks."""

import dataclasses
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import run_failing, run_json, strict_json
from numpy.testing import assert_array_equal
from shades_model import LADDER, MODEL, NAMES, TASK, TINY

import replicax as rx
from replicax import errors
from replicax.cli import flags
from replicax.cli.flags import join_numbers
from replicax.cli.main import main
from replicax.cli.output import describe_error
from replicax.networks import evaluate
from replicax.networks.by_name import NamedProblem
from replicax.networks.train import train
from replicax.networks.trained import Trained
from replicax.run.storage import files


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model and a run `run` of it; nobody writes into the run."""
    folder = tmp_path_factory.mktemp("cli-train")
    (folder / "model.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        assert main(["train", *TINY, *LADDER, "--keep-networks", "--out", "run", "--json"]) == 0
    return folder


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return place


@pytest.fixture
def copied(here, tmp_path):
    """A copy of the run, to be changed."""
    shutil.copytree("run", tmp_path / "run")
    return tmp_path / "run"


# train


def test_train_writes_the_summary_that_the_command_prints(here, capsys):
    capsys.readouterr()
    written = strict_json(Path("run/summary.json").read_text())
    assert (written["method"], written["epochs"], written["networks"]) == ("deo-star", 3, 3)
    assert written["result"]["code"] == "finished" and written["run_dir"] == "run"
    assert written["exchange"]["window"] == 2
    assert [part["by"] for part in written["averages"]] == ["probabilities", "logits"]
    trained = rx.load("run")
    assert written["averages"][0]["nll"] == pytest.approx(trained.metrics().nll)
    assert written["coldest"]["accuracy"] == pytest.approx(float(trained.epochs["accuracy"][-1, 0]))
    assert trained.draws[0]["bias"].shape == (1, 3, 3)  # kept: (chain, epoch, class)
    printed = run_json(capsys, "summary", "run")
    assert printed == {name: value for name, value in written.items() if name != "run_dir"}


@pytest.mark.slow
def test_train_is_a_table_for_people(here, capsys, tmp_path):
    assert main(["train", *TINY, "--method", "ensemble", "--out", str(tmp_path / "e")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "first network" in shown and "average of 3, logits" in shown
    assert "round trips" not in shown  # nothing is exchanged
    assert f"Results are in {tmp_path / 'e'}/" in shown


@pytest.mark.slow
def test_the_same_seed_gives_the_same_networks(here, capsys, tmp_path):
    again = run_json(capsys, "train", *TINY, *LADDER, "--out", tmp_path / "again")
    first = strict_json(Path("run/summary.json").read_text())
    assert again["by_rung"] == first["by_rung"] and again["averages"] == first["averages"]
    other = run_json(capsys, "train", *TINY, *LADDER, "--seed", "1", "--out", tmp_path / "other")
    assert other["by_rung"] != first["by_rung"]


@pytest.mark.slow
def test_pretrain_and_start_from_it(here, capsys, tmp_path):
    starts = tmp_path / "starts"
    summary = run_json(
        capsys, "train", "--method", "pretrain", *TINY, "--learning-rate", "0.05", "--out", starts
    )
    assert summary["method"] == "pretrain"
    assert summary["averages"] == [] and "exchange" not in summary
    continued = run_json(
        capsys, "train", *TINY, *LADDER, "--init-from", starts, "--out", tmp_path / "on"
    )
    assert len(continued["averages"]) == 2
    last = rx.load(starts).epochs["accuracy"][-1]
    assert last.mean() > 0.4  # the networks, and so the starts, have learnt something
    message = run_failing(capsys, "train", *TINY, *LADDER, "--replicas", 5, "--init-from", starts,
                 "--out", tmp_path / "many")  # fmt: skip
    assert "holds 3 networks, but 5 are needed" in message
    assert main(["summary", str(starts)]) == main(["plot", str(starts)]) == 0
    assert "mean of all networks" in capsys.readouterr().out
    assert [path.name for path in (starts / "figures").iterdir()] == ["epochs.png"]


def test_a_loss_that_breaks_has_its_own_exit_code(here, capsys, tmp_path):
    options = ["--model", "model.py:fragile", *TINY[2:], "--learning-rate", "30", "--method"]
    message = run_failing(
        capsys, "train", *options, "ensemble", "--out", tmp_path / "broken", code=3
    )
    assert "at step" in message
    assert rx.load(tmp_path / "broken").result.code == "nonfinite"


# summary, plot


def test_the_summary_has_metrics(copied, capsys):
    numbers = run_json(capsys, "summary", copied)
    assert {"by", "nll", "accuracy", "brier", "calibration_error"} <= set(numbers["averages"][0])


def test_predict_writes_probabilities_and_says_how_sure_they_are(here, capsys, tmp_path):
    problem, _ = NamedProblem("model.py:dense", "model.py:shades", batch_size=8).problem()
    images, trained = problem.test.inputs, rx.load("run", problem)
    np.save(tmp_path / "images.npy", images)
    out = tmp_path / "new" / "probs.npy"
    capsys.readouterr()  # what the model prints when it is imported
    numbers = run_json(capsys, "predict", "run", tmp_path / "images.npy", "--out", out)
    assert np.load(out) == pytest.approx(np.exp(trained.predict(images)), abs=1e-6)
    assert (numbers["images"], numbers["networks"], numbers["by"]) == (12, 3, "probabilities")
    assert sum(numbers["classes"]) == 12 and len(numbers["classes"]) == 3
    parts = numbers["uncertainty"]
    assert parts["total"] == pytest.approx(parts["aleatoric"] + parts["epistemic"])
    members = trained.predict(images, members=True)
    wanted = rx.predict.uncertainty(members).epistemic.mean()
    assert parts["epistemic"] == pytest.approx(wanted, abs=1e-6)
    options = ["--members", "--by", "logits", "--out", str(out)]
    assert main(["predict", "run", str(tmp_path / "images.npy"), *options]) == 0
    assert np.load(out) == pytest.approx(np.exp(members), abs=1e-6)
    assert "3 networks averaged by logits" in capsys.readouterr().out


def test_predict_writes_over_nothing_but_what_it_wrote(copied, capsys, tmp_path):
    images, victim = tmp_path / "images.npy", tmp_path / "victim.npy"
    shades = np.random.default_rng(0).integers(0, 256, (9, 6, 6, 1))
    np.save(images, shades.astype(np.uint8))
    before = images.read_bytes()
    assert "the file of the inputs" in run_failing(
        capsys, "predict", copied, images, "--out", images
    )
    assert images.read_bytes() == before
    victim.write_text("mine")
    (copied / "probs.npy").symlink_to(victim)
    said = run_failing(capsys, "predict", copied, images, "--out", copied / "probs.npy")
    assert "is a symbolic link" in said and victim.read_text() == "mine"


def change_predicts(content, **entries):
    content["resolved"]["predicts"] |= entries


ROW = {"names": ["params"], "shapes": [[2**20, 2**20, 1]], "dtypes": ["uint8"]}
HARMFUL = {
    "a likelihood of another kind": lambda x: change_predicts(x, likelihood={"name": "evil"}),
    "a likelihood of text": lambda x: change_predicts(
        x, likelihood={"kind": "gaussian", "centre": "ab", "spread": [1.0]}
    ),
    "no classes": lambda x: change_predicts(
        x, likelihood={"kind": "categorical", "num_classes": 2**40}
    ),
    "pixels of text": lambda x: change_predicts(x, pixels={"mean": "x", "std": [1.0]}),
    "pixels of another kind": lambda x: change_predicts(x, pixels={"evil": 1}),
    "inputs of a terabyte": lambda x: change_predicts(x, inputs={**ROW, "structure": {"leaf": 0}}),
    "a deep network": lambda x: x["note"]["task"].update(model="resnet999998"),
    "a wide network": lambda x: x["note"]["task"].update(model="mlp-99999999999"),
    "a long network": lambda x: x["note"]["task"].update(model="mlp" + "-9" * 10_000),
}


@pytest.mark.parametrize("change", HARMFUL.values(), ids=HARMFUL)
def test_what_a_folder_says_of_its_networks_is_looked_at(change, copied, capsys, tmp_path):
    np.save(tmp_path / "images.npy", np.full((2, 6, 6, 1), 100, np.uint8))
    content = json.loads((copied / "run.json").read_text())
    content.pop("digest")
    change(content)
    files.write_json(copied / "run.json", content)
    began = time.monotonic()
    line = run_failing(capsys, "predict", copied, tmp_path / "images.npy")
    assert "run.json is damaged" in line or "--model is" in line
    assert len(line) < 400 and time.monotonic() - began < 30


def test_predict_needs_no_data(copied, capsys, tmp_path, monkeypatch):
    """The folder knows shapes, classes and normalisation; the model sees a stand-in of the data."""
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 6, 1)).astype(np.uint8)
    np.save(tmp_path / "images.npy", images)
    problem, _ = NamedProblem("model.py:dense", "model.py:shades", batch_size=8).problem()
    wanted = np.exp(rx.load(copied, problem).predict(images))
    monkeypatch.setattr(NamedProblem, "dataset", lambda self: pytest.fail("the data are not there"))
    capsys.readouterr()
    run_json(capsys, "predict", copied, tmp_path / "images.npy", "--out", tmp_path / "p.npy")
    assert np.load(tmp_path / "p.npy") == pytest.approx(wanted, abs=1e-6)


def test_noise_is_one_number_one_for_each_target_or_a_name():
    texts = (None, "0.5", "0.1,50", "learned")
    assert [flags.given(NamedProblem, {"noise": text}).get("noise") for text in texts] == [
        None,
        0.5,
        (0.1, 50.0),
        "learned",
    ]
    joined = ["--noise=0.1,50", "--out", "a"]
    assert join_numbers(["--noise", "0.1", "50", "--out", "a"]) == joined


def test_real_numbers_from_a_file_to_predictions_without_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(40, 2))
    targets = 300 + 20 * inputs[:, 0] + rng.normal(size=40)
    np.savez("rows.npz", inputs=inputs, targets=targets)
    np.save("new.npy", inputs[:7])
    options = ["--data", "rows.npz", "--model", "mlp-4", "--batch-size", "8", "--replicas", "2"]
    options += ["--validation", "8", "--noise", "2.5", "--epochs", "6", "--no-progress"]
    summary = run_json(capsys, "train", *options, "--out", "run")
    assert summary["likelihood"]["kind"] == "gaussian" and summary["averaged"] == 2
    Path("rows.npz").unlink()
    numbers = run_json(capsys, "predict", "run", "new.npy", "--out", "new.npz")
    trained = rx.load("run")
    predicted, written = trained.predict(inputs[:7]), np.load("new.npz")
    assert predicted.mean == pytest.approx(written["mean"]) and np.all(
        abs(predicted.mean - 300) < 99
    )
    assert predicted.sd == pytest.approx(written["sd"]) and np.all(predicted.sd >= 2.5)
    parts = numbers["uncertainty"]
    assert numbers["rows"] == 7 and parts["aleatoric"] == pytest.approx(2.5)
    assert parts["total"] ** 2 == pytest.approx(2.5**2 + parts["epistemic"] ** 2)
    run_json(capsys, "predict", "run", "new.npy", "--members", "--out", "each.npz")
    assert np.load("each.npz")["sd"].shape == (2, 7)
    weights = rng.uniform(size=40)
    np.savez("known.npz", inputs=inputs, targets=targets, weights=weights)
    np.save("far.npy", inputs + 50)
    given = ["known.npz", "--interval", "0.8", "--against", "far.npy", "--out", "ends.npz"]
    numbers, written = run_json(capsys, "predict", "run", *given), np.load("ends.npz")
    assert numbers["scores"] == trained.metrics(data=(inputs, targets, weights))._asdict()
    error = np.average((trained.predict(inputs).mean - targets) ** 2, weights=weights)
    assert numbers["scores"]["rmse"] == pytest.approx(np.sqrt(error), rel=1e-4)
    assert np.all(written["low"] < written["mean"]) and np.all(written["high"] > written["mean"])
    assert written["high"][0] == pytest.approx(trained.predict(inputs, interval=0.8).high[0])
    inside, outside = (trained.predict(x, members=True) for x in (inputs, inputs + 50))
    apart = [rx.predict.uncertainty(x).epistemic for x in (inside, outside)]
    assert numbers["against"]["auroc_epistemic"] == pytest.approx(rx.predict.auroc(*apart))
    assert main(["predict", "run", "new.npy"]) == 0
    assert "Standard deviations, root mean square: total" in capsys.readouterr().out
    for arguments, sentence in (
        (["predict", "run", "new.npy", "--out", "a.npy"], "write the name of a .npz file"),
        (["predict", "run", "new.npy", "--by", "logits"], "--by is 'logits'"),
        (["predict", "run", "new.npy", "--interval", "90"], "interval is 90.0; give a number"),
        (["resume", "run", "--epochs", "9"], "There is no file"),
    ):
        assert sentence in run_failing(capsys, *arguments)


LAW = """
import jax.numpy as jnp
import replicax as rx

own = rx.Likelihood("own", lambda y, v: -v - y * jnp.exp(-v), jnp.exp, jnp.exp,
                    lambda y, v: 1 - jnp.exp(-y * jnp.exp(-v)), support="positive")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "score"),
    [("poisson", "rmse"), ("law.py:own", "rmse"), ("ordinal", "brier"), ("multilabel", "brier")],
)
def test_likelihoods_by_name_from_file_to_scores(likelihood, score, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("law.py").write_text(LAW)
    rng = np.random.default_rng(0)
    inputs, counts = rng.normal(size=(40, 2)), 1 + rng.poisson(5, 40)
    outcomes = counts % 3 if likelihood == "ordinal" else counts
    outcomes = np.stack([counts > 4, counts > 6], 1) + 0 if likelihood == "multilabel" else outcomes
    kind = "labels" if score == "brier" else "targets"
    rows = {"inputs": inputs, kind: outcomes, "weights": rng.uniform(size=40)}
    np.savez("rows.npz", **rows)
    options = ["--data", "rows.npz", "--model", "mlp-4", "--batch-size", "8", "--replicas", "2"]
    options += ["--validation", "8", "--epochs", "6", "--no-progress", "--likelihood", likelihood]
    balanced = ["--class-weight", "balanced"]
    options += balanced if kind == "labels" else []
    summary = run_json(capsys, "train", *options, "--out", "run")
    assert summary["averaged"] == 2 and np.isfinite(summary["averages"][0]["nll"])
    assert main(["report", "run"]) == 0
    capsys.readouterr()
    if ":" not in likelihood:
        Path("rows.npz").rename("moved.npz")
    np.savez("known.npz", **rows)
    numbers = run_json(capsys, "predict", "run", "known.npz", "--out",
                       "p.npz" if kind == "targets" else "p.npy")  # fmt: skip
    assert np.isfinite(numbers["scores"][score])
    if kind == "targets":
        options[options.index("--validation") + 1] = "9"
        arguments = [*options, *balanced, "--data", "known.npz", "--out", "other"]
        said = run_failing(capsys, "train", *arguments)
        assert "class-weight is 'balanced', and known.npz has targets: leave it out" in said


def test_predict_refuses_what_is_no_image(here, capsys, tmp_path):
    np.save(tmp_path / "wrong.npy", np.zeros((3, 5, 5, 1), np.uint8))
    (tmp_path / "text.npy").write_text("no array")
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    for name, sentence in (
        ("wrong.npy", "the network takes (row, 6, 6, 1)"),
        ("text.npy", "is not a .npy file of numbers"),
        ("two.npz", "holds 2 arrays (a, b)"),
        ("none.npy", "There is no file"),
    ):
        assert sentence in run_failing(capsys, "predict", "run", tmp_path / name)
    arguments = ["predict", "run", tmp_path / "wrong.npy"]
    assert "--by is 'logit'" in run_failing(capsys, *arguments, "--by", "logit")
    assert "--out is 'a.txt'" in run_failing(capsys, *arguments, "--out", "a.txt")
    denied = PermissionError(13, "Permission denied", "/no/p.npy")
    assert describe_error(denied) == "/no/p.npy cannot be used: permission denied."


def test_inputs_that_fill_the_memory_or_are_no_file_are_refused(
    here, capsys, tmp_path, monkeypatch
):
    np.savez_compressed(tmp_path / "zeros.npz", np.zeros((1000, 6, 6, 1)))
    os.mkfifo(tmp_path / "pipe.npy")
    assert "There is no file" in run_failing(capsys, "predict", "run", tmp_path / "pipe.npy")
    monkeypatch.setattr(errors, "memory_of_machine", lambda: 1e5)
    said = run_failing(capsys, "predict", "run", tmp_path / "zeros.npz")
    assert "zeros.npz holds 0.0 GB of numbers, and this machine has" in said


def test_plot_names_its_figures(here, capsys, monkeypatch):
    plotted = []
    monkeypatch.setattr(Trained, "plot", lambda self, out: plotted.append(out) or {"a": None})
    assert main(["plot", "run", "--out", "there"]) == 0
    assert capsys.readouterr().out == "there/a.png\n"
    assert run_json(capsys, "plot", "run") == {"figures": ["run/figures/a.png"]}
    assert plotted == [Path("there"), Path("run/figures")]


def test_a_folder_that_is_not_there_is_told_with_one_that_is(here, capsys):
    assert "There is no folder" in run_failing(capsys, "summary", "rum")
    assert "Did you mean 'run'?" in run_failing(capsys, "summary", "rum")


# resume


def test_resume_makes_a_run_longer_from_anywhere(copied, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = rx.load("run").epochs["nll"]
    longer = run_json(capsys, "resume", "run", "--epochs", 5)
    assert longer["epochs"] == 5 and longer["result"]["code"] == "finished"
    assert_array_equal(rx.load("run").epochs["nll"][:3], first)
    assert "the run was made for 5" in run_failing(capsys, "resume", "run", "--epochs", 4)


@pytest.mark.slow
def test_a_run_stopped_by_ctrl_c_resumes_bit_for_bit(here, capsys, tmp_path, monkeypatch):
    """Stopped in the first epochs and resumed: the same as the run that was not stopped."""
    build = evaluate.build_average

    def interrupting(*args):
        evaluation = build(*args)

        def stop_at_the_first(averages, carry):
            if int(averages.count) == 0:
                signal.raise_signal(signal.SIGINT)
            return evaluation.evaluate(averages, carry)

        return dataclasses.replace(evaluation, evaluate=stop_at_the_first)

    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "build_average", interrupting)
        message = run_failing(
            capsys, "train", *TINY, *LADDER, "--keep-networks", "--out", folder, code=130
        )
    assert f"Continue it with: replicax resume {folder}" in message
    assert rx.load(folder).result.code == "interrupted" and rx.load(folder).num_epochs < 3
    resumed = run_json(capsys, "resume", folder)
    whole = strict_json(Path("run/summary.json").read_text())
    same = ("by_rung", "averages", "exchange", "epochs")
    assert {name: resumed[name] for name in same} == {name: whole[name] for name in same}
    for one, other in zip(rx.load(folder).rung_of, rx.load("run").rung_of, strict=True):
        assert_array_equal(one, other)


@pytest.mark.slow
def test_a_run_started_in_python_says_how_to_continue_and_that_works(here, capsys, tmp_path):
    task = NamedProblem("model.py:dense", "model.py:shades", batch_size=8, augment=False)
    problem, init = task.problem()
    train(problem, init, epochs=1, num_replicas=2, method="ensemble", progress=False,
             run_dir=tmp_path / "mine")  # fmt: skip
    assert "started in Python" in run_failing(capsys, "resume", tmp_path / "mine")
    assert rx.resume(tmp_path / "mine", problem).num_epochs == 1


# wrong input


@pytest.mark.parametrize(
    "args, sentence",
    [
        (["--model", "smal", "--data", "model.py:shades"], "Did you mean 'small'?"),
        (["--model", "resnet19x", "--data", "model.py:shades"], "write small, mlp"),
        (["--model", "model.py:dens", "--data", "model.py:shades"], "Did you mean 'dense'?"),
        (["--model", "model.py:fixed", *NAMES[2:]], "it must be an rx.nn.Network"),
        ([*TASK, "--data", "cifar11"], "Did you mean 'cifar10'?"),
        ([*TASK, "--data", "model.py:shade"], "Did you mean 'shades'?"),
        ([*TASK, "--data", "modle.py:shades"], "Did you mean 'model.py'?"),
        ([*TASK, "--data", "model.py:fixed"], "it must be an rx.data.Dataset"),
        ([*TASK, "--data", "rows.npz"], "There is no file"),
        ([*TINY, "--noise", "0.1"], "--noise is 0.1, and tiny has labels"),
        ([*TINY, "--likelihood", "student"], "--likelihood is 'student'; it must be one of cat"),
        ([*TINY, "--method", "deo-sta"], "Did you mean 'deo-star'?"),
        ([*TINY, "--method", "ensemble", *LADDER[:3]], '"ensemble" has no ladder: give one'),
        ([*TINY, "--method", "cyc-sghmc", *LADDER[:3]], '"cyc-sghmc" has no ladder'),
        ([*TINY, *LADDER[-2:], "--learning-rate", "0.2", "0.02"], "must not decrease"),
        ([*TINY, "--learning-rate", "fast"], "--learning-rate is 'fast'"),
        ([*TINY, "--swap-rate", "2"], "(0, 1)"),
        ([*TINY, "--on-swap", "rest"], "'reset'"),
        ([*TINY, "--epochs", "0"], "--epochs"),
        ([*TINY, "--batch-size", "64"], "32"),
        ([*TINY, "--weight-decay", "-1"], "at least 0"),
        ([*TINY, "--out", "run"], "`replicax resume run`"),
        ([*TINY, "--init-from", "nothing"], "There is no folder nothing"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(here, capsys, args, sentence):
    assert sentence in run_failing(capsys, "train", *args)
    assert not Path("runs").exists()
