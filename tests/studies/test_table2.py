"""Table 2 on tiny networks: from scratch to the page, interrupted, and with missing runs."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import replicax as rx
import studies
from replicax.networks.predict import Metrics
from replicax.networks.train import last_networks
from studies import __main__ as command
from studies.table2 import figures, findings, numbers, page, paper, starts
from studies.table2 import trainings as table2
from studies.table2.trainings import METHODS, Settings

# A linear network on rows of four pixels. Test labels are wrong on purpose: the longer one trains,
# the worse the test gets, so that the best epoch is not the last one.
_FILE = """
import jax, jax.numpy as jnp, numpy as np
from replicax.data import Dataset
from replicax.nn import Network

random = np.random.default_rng(0)
labels = random.integers(0, 3, 320).astype(np.int32)
images = random.integers(0, 60, (320, 2, 2, 1)) + 60 * labels[:, None, None, None]
images = images.astype(np.uint8)
blobs = Dataset("blobs", images[:256], labels[:256], images[256:], (labels[256:] + 1) % 3,
                num_classes=3, mean=(0.4,), std=(0.2,))

def init(key):
    return {"weight": 0.1 * jax.random.normal(key, (4, 3))}, {}

def apply(params, state, images, train):
    return images.reshape(len(images), -1).astype(jnp.float32) @ params["weight"], state

tiny = Network(init, apply)
"""
EPOCHS = 6
RUN = ("starts", "deo", "deo-star")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table2")
    (folder / "parts.py").write_text(_FILE)
    return folder


def arguments(place: Path, out: Path, *more: str) -> list[str]:
    file = place / "parts.py"
    return ["table2", "--model", f"{file}:tiny", "--data", f"{file}:blobs",
            "--epochs", str(EPOCHS), "--start-epochs", "2", "--out", str(out), *more]  # fmt: skip


def settings_of(place: Path, *methods: str) -> Settings:
    file = place / "parts.py"
    return Settings(f"{file}:tiny", f"{file}:blobs", EPOCHS, 2, methods)


@pytest.fixture(scope="module")
def out(place: Path) -> Path:
    """Some of the six runs, from scratch, and their page, written by the command."""
    folder = place / "out"
    table2.run_all(settings_of(place, *RUN), folder / "records" / "table2")
    assert command.main(arguments(place, folder, "--assemble")) == 0
    return folder


@pytest.fixture(scope="module")
def runs(out: Path) -> Path:
    return out / "records" / "table2"


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not draw figures: they take time, and these tests do not need them."""
    monkeypatch.setattr(figures, "draw_all", lambda *args: {})


def read_summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "table2.json").read_text())


def row_of(page: str, model: str, method: str) -> list[str]:
    """The cells of the headline table."""
    part = page.split(f"## {model}\n")[1].split("\n## ")[0]
    (line,) = [line for line in part.split("\n") if line.startswith(f"| {method} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
def test_runs_are_made_with_the_papers_settings(runs: Path) -> None:
    starts, deo, star = (table2.open_run(runs / "tiny" / name) for name in RUN)
    assert starts is not None and deo is not None and star is not None
    assert (starts.method, starts.num_epochs, starts.num_replicas) == ("pretrain", 2, 10)
    assert (deo.window, star.window) == (1, 626)
    for run in (deo, star):
        assert (run.num_epochs, run.num_replicas, run.result.code) == (EPOCHS, 10, "finished")
        assert run.options["on_swap"] == "reset"
        assert run.options["target_swap_rate"] == 0.005
        assert run.learning_rates[0, [0, -1]].tolist() == pytest.approx([0.005, 0.02])
        task = run.metadata.note["task"]
        assert task["bf16"] and task["batch_size"] == 256 and task["augment"]
    assert numbers.command_of(star) == (
        "replicax train --method deo-star --model FILE.PY:tiny --data FILE.PY:blobs --replicas 10 "
        f"--epochs {EPOCHS} --bf16 --on-swap reset --init-from runs/starts"
    )


def test_the_settings_are_the_papers() -> None:
    assert Settings().options("ensemble")["epochs"] == 500
    assert Settings().options("starts") == {
        "method": rx.pretrain(), "seed": 0, "num_replicas": 10, "epochs": 300
    }  # fmt: skip
    for name, made in (("deo", rx.deo), ("deo-star", rx.deo_star)):
        assert Settings().options(name)["method"] == made(on_swap="reset")
    digits = Settings(data="digits").options("deo-star")["method"]
    assert (digits.learning_rate, digits.target_swap_rate) == ((0.02, 0.3), 0.1)


def test_without_runs_the_page_has_the_numbers_of_the_paper_alone(tmp_path: Path) -> None:
    summary = table2.reproduce(Settings(), tmp_path / "out", tmp_path / "runs", assemble=True)
    page = (tmp_path / "out" / "table2.md").read_text()
    for model in table2.PAPER_MODELS:
        states = {run["state"] for run in summary["models"][model]["runs"].values()}
        assert states == {"not run"} and f"No run of {model} is there: **not run**." in page
        cells = row_of(page, model, "DEO⋆-mSGD×P10")[1:]
        assert not re.search(r"\d", " ".join(cells[:7]))
        assert cells[7].startswith(f"{paper.RESULTS[model]['deo-star'][2]:.2f} ")
    assert summary["figures"] == []


def test_models_whose_folders_are_elsewhere_keep_their_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, out = Path(__file__).parents[2] / "docs/results", tmp_path / "out"
    out.mkdir()
    for path in results.glob("table2*"):
        shutil.copy(path, out)
    (out / "table2-resnet32-epochs.png").unlink()  # its curves are in the JSON
    earlier = read_summary(out)
    monkeypatch.setattr(page, "__version__", earlier["version"])
    command = earlier["command"]
    table2.reproduce(Settings(), out, tmp_path / "runs", assemble=True, command=command)
    (out / "index.md").unlink(missing_ok=True)
    assert {path.name for path in out.iterdir()} == {path.name for path in results.glob("table2*")}
    assert (out / "table2.md").read_text() == (results / "table2.md").read_text()


@pytest.mark.slow
def test_the_command_makes_all_six(place: Path) -> None:
    folder = place / "six"
    assert command.main(arguments(place, folder)) == 0
    for method, made in METHODS.items():
        run = table2.open_run(folder / "records" / "table2" / "tiny" / method)
        assert run is not None and run.result.code == "finished"
        single = method.startswith("cyc")
        assert (run.method, run.num_replicas) == (made().name, 1 if single else 10)
        assert run.num_epochs == {"starts": 2}.get(method, 10 * EPOCHS if single else EPOCHS)
        if method != "starts":
            row = row_of((folder / "table2.md").read_text(), "tiny", paper.NAMES[method])
            assert float(row[5]) == pytest.approx(run.epochs["average_nll_logits"][-1], abs=2e-4)


@pytest.mark.slow
def test_the_page_has_the_numbers_of_the_last_epoch(out: Path, runs: Path) -> None:
    page, summary = (out / "table2.md").read_text(), read_summary(out)["models"]["tiny"]
    for method in ("deo", "deo-star"):
        run = table2.open_run(runs / "tiny" / method)
        assert run is not None
        nll = run.epochs["average_nll_logits"]
        assert nll[-1] > nll.min() + 1e-3
        row = row_of(page, "tiny", paper.NAMES[method])
        assert float(row[5]) == pytest.approx(nll[-1], abs=2e-4)
        assert float(row[3]) == pytest.approx(
            100 * run.epochs["average_accuracy_logits"][-1], abs=0.01
        )
        assert row[1] == str(EPOCHS)
        assert summary["runs"][method]["averages"][0]["nll"] == pytest.approx(nll[-1], abs=1e-5)
        curve = summary["runs"][method]["curve"]
        assert curve["epochs"] == [10 * (epoch + 1) for epoch in range(EPOCHS)]  # ten networks
        assert curve["average_nll"] == pytest.approx(nll)


@pytest.mark.slow
def test_a_page_of_the_best_epoch_would_be_noticed(place, runs, undrawn, monkeypatch) -> None:
    def best(run: rx.Trained, at_start: Any) -> list[dict[str, Any]]:
        lowest = float(np.nanmin(run.epochs["average_nll_logits"]))
        top = float(np.nanmax(run.epochs["average_accuracy_logits"]))
        metrics = Metrics(lowest, lowest * len(run.labels), top, 0.0, 0.0, 0.0)
        return [{"by": "logits", "start_weight": 0.0, **metrics._asdict()}]

    monkeypatch.setattr(numbers, "averages", best)
    elsewhere = place / "best"
    table2.reproduce(settings_of(place), elsewhere, runs, assemble=True)
    with pytest.raises(AssertionError):
        test_the_page_has_the_numbers_of_the_last_epoch(elsewhere, runs)


@pytest.mark.slow
def test_no_path_of_this_machine_is_told(place: Path, out: Path) -> None:
    for name in ("table2.md", "table2.json"):
        text = (out / name).read_text()
        assert str(place) not in text and "parts.py" not in text
        assert not re.search(r"(?<![\w.])/(tmp|home|work|root)/", text)
    assert "blobs" in (out / "table2.md").read_text()
    assert len(list(out.glob("table2-tiny-*.png"))) == len(read_summary(out)["figures"]) == 5
    assert "table2.md" in (out / "index.md").read_text()


@pytest.mark.slow
def test_a_second_call_runs_nothing(place: Path, out: Path, undrawn, monkeypatch) -> None:
    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("all runs are finished")

    monkeypatch.setattr(table2, "_start_or_resume", never)
    before, runs = read_summary(out), out / "records" / "table2"
    summary = table2.reproduce(settings_of(place, *RUN), place / "again", runs)
    for name, model in before["models"].items():
        assert {**summary["models"][name], "captions": model["captions"]} == model  # undrawn
    with pytest.raises(AssertionError, match="finished"):
        table2.run_all(settings_of(place, "ensemble"), runs)


@pytest.mark.slow
def test_an_interrupted_run_resumes_from_a_copied_folder(place, runs, undrawn) -> None:
    here, settings = place / "here", settings_of(place, "starts", "deo-star")
    shutil.copytree(runs / "tiny" / "starts", here / "tiny" / "starts")

    def stop(progress: Any) -> Any:
        return "stop" if progress.step >= 3 else None

    with pytest.raises(KeyboardInterrupt):
        table2.reproduce(settings, place / "half", here, callback=stop)
    stopped = table2.open_run(here / "tiny" / "deo-star")
    assert stopped is not None and stopped.num_epochs == 3
    summary = table2.reproduce(settings, place / "half", here, assemble=True)
    assert summary["models"]["tiny"]["runs"]["deo-star"]["state"] == "stopped"
    page = (place / "half" / "table2.md").read_text()
    assert row_of(page, "tiny", "DEO⋆-mSGD×P10")[1] == f"3 of {EPOCHS}, unfinished"

    there = place / "there"  # as on another machine
    here.rename(there)
    table2.reproduce(settings, place / "half", there)
    resumed = table2.open_run(there / "tiny" / "deo-star")
    whole = table2.open_run(runs / "tiny" / "deo-star")
    assert resumed is not None and whole is not None
    np.testing.assert_array_equal(resumed.log_probabilities(), whole.log_probabilities())
    assert table2.wall_seconds(there / "tiny" / "deo-star", resumed.num_steps) is not None


@pytest.mark.slow
def test_start_networks_count_as_much_as_ten(place: Path, runs: Path) -> None:
    """Against their average computed here, of their logits on all test images at once."""
    problem, _ = settings_of(place).task().problem()
    networks = last_networks(runs / "tiny" / "starts", problem, 10)
    logits = jax.vmap(problem.test.outputs, (0, 0, None))(*networks, problem.test.inputs)
    run = table2.open_run(runs / "tiny" / "deo")
    assert run is not None and len(logits) == 10
    total = np.asarray(run.average.logits) + 10 * np.asarray(logits).sum(axis=0)
    predicted = jax.nn.log_softmax(total / (EPOCHS + 100))
    expected = -float(predicted[np.arange(64), run.labels].sum())
    ways = numbers.averages(run, starts.read(runs / "tiny" / "starts", 10))
    assert numbers.pick(ways, start_weight=10.0)["nll_sum"] == pytest.approx(expected, rel=1e-4)
    alone = starts.read(runs / "tiny" / "starts", 1)
    assert alone is not None and float(alone.weight) == 1
    np.testing.assert_allclose(alone.logits, logits[0], rtol=1e-5)
    assert starts.read(runs / "tiny", 1) is None


def test_unfinished_runs_are_named_so_where_they_are_compared() -> None:
    gain = {"accuracy": 0.03, "accuracy_error": 0.01, "nll_sum": -900.0, "nll_sum_error": 60.0}
    runs = {"deo-star": {"state": "finished"}, "cyc-swag": {"state": "interrupted"}}
    claims = findings.claims("resnet20", {"deo-star - cyc-swag": gain}, runs)
    what = "resnet20, DEO⋆-mSGD×P10 minus cycSWAG×T10 (unfinished): "
    assert [finding.what for finding in claims] == [what + "accuracy, points", what + "NLL, sum"]
    assert [finding.met for finding in claims] == [True, True]


@pytest.mark.slow
def test_a_run_killed_before_it_saved_anything_begins_again(place, runs, monkeypatch) -> None:
    folder = place / "killed" / "tiny" / "deo-star"
    shutil.copytree(runs / "tiny" / "starts", folder.parent / "starts")
    folder.mkdir()
    shutil.copy(runs / "tiny" / "deo-star" / "run.json", folder)
    assert table2.open_run(folder) is None

    class Begun(Exception):
        pass

    def begin(problem: Any, start: Path, *, run_dir: Path, **options: Any) -> None:
        assert start == folder.parent / "starts" and run_dir == folder and not folder.exists()
        raise Begun

    monkeypatch.setattr(rx, "train", begin)
    with pytest.raises(Begun):
        table2.run_all(settings_of(place, "starts", "deo-star"), place / "killed")


@pytest.mark.slow
def test_missing_runs_are_named_and_have_no_numbers(place, runs, undrawn) -> None:
    here, elsewhere = place / "few", place / "few-out"
    for name in ("starts", "deo"):
        shutil.copytree(runs / "tiny" / name, here / "tiny" / name)
    arguments_ = arguments(place, elsewhere, "--runs", str(here), "--assemble")
    assert command.main(arguments_) == 0
    assert sorted(path.name for path in (here / "tiny").iterdir()) == ["deo", "starts"]
    page, summary = (elsewhere / "table2.md").read_text(), read_summary(elsewhere)
    for method in ("ensemble", "deo-star", "cyc-sghmc", "cyc-swag"):
        assert summary["models"]["tiny"]["runs"][method] == {"state": "not run"}
        name, *cells = row_of(page, "tiny", paper.NAMES[method])
        assert "not run" in cells and not re.search(r"\d", " ".join(cells))
    assert re.search(r"\d\.\d", row_of(page, "tiny", "DEO-mSGD×P10")[3])
    for model in table2.PAPER_MODELS:
        assert f"No run of {model} is there: **not run**." in page
        name, *cells = row_of(page, model, "DEO⋆-mSGD×P10")
        assert not re.search(r"\d", " ".join(cells[:7]))  # the paper's own stand beside
        assert cells[7:9] == [
            f"{paper.RESULTS[model]['deo-star'][2]:.2f} ± {paper.RESULTS[model]['deo-star'][3]}",
            f"{paper.RESULTS[model]['deo-star'][0]} ± {paper.RESULTS[model]['deo-star'][1]}",
        ]


def test_missing_data_are_reported_with_the_archive(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("REPLICAX_DATA", str(tmp_path / "nothing"))
    assert command.main(["table2", "--out", str(tmp_path / "out")]) == 2
    assert "cifar-100" in capsys.readouterr().err
    assert command.main(["window", "--assemble"]) == 2
    assert "Only table2 takes --assemble" in capsys.readouterr().err
    assert command.main(["table2", "--quick"]) == 2
    assert "table2 does not take --quick" in capsys.readouterr().err


def test_all_leaves_table2_out(monkeypatch, tmp_path) -> None:
    assert "table2" in studies.NAMES and "table2" in studies.NOT_IN_ALL
    loaded: list[str] = []

    def load(name: str) -> Any:
        loaded.append(name)
        raise ValueError("not run")

    real = [name for name in studies.NAMES if name != "table2"]
    monkeypatch.setattr(studies, "load_study", load)
    assert command.main(["all", "--out", str(tmp_path)]) == 2
    assert loaded[0] == real[0] and "table2" not in loaded
    monkeypatch.setattr(studies, "NAMES", ("table2",))
    loaded.clear()
    command.main(["all", "--out", str(tmp_path)])
    assert loaded == []


@pytest.mark.parametrize(
    ("points", "nats", "word"),
    [(0.5, -90, "better"), (0.1, -90, "better"), (0.1, 10, "a tie"), (-0.5, 10, "worse"),
     (0.5, 90, "a tie")],
)  # fmt: skip
def test_the_page_begins_with_whether_exchange_wins(points, nats, word) -> None:
    difference = numbers.Difference(points / 100, 0.001, nats, 20.0)._asdict()
    model = {"compared": {"deo-star - ensemble": difference},
             "runs": {"deo-star": {"epochs": 7}, "ensemble": {"epochs": 7}}}  # fmt: skip
    answer = findings.does_exchange_win({"tiny": model})
    assert f"tiny, 7 epochs: {word} ({points:+.2f} ± 0.10 points, {nats:+.0f} ± 20" in answer
    model["runs"]["ensemble"]["epochs"] = 9
    assert f"tiny, 7 against 9 epochs: {word}" in findings.does_exchange_win({"tiny": model})
    assert findings.does_exchange_win({"tiny": {"compared": {}}}) == ""


def test_differences_are_paired() -> None:
    def run(right: list[bool]) -> Any:
        table = np.log(np.where(np.array(right)[:, None] == [True, False], 0.75, 0.25))
        return SimpleNamespace(labels=np.zeros(len(right), int), log_probabilities=lambda by: table)

    one, other = run([True] * 60 + [False] * 40), run([True] * 50 + [False] * 50)
    difference = numbers.compare(one, other)
    assert difference.accuracy == pytest.approx(0.1)
    assert difference.accuracy_error == pytest.approx(np.sqrt(0.1 * 0.9 / 99))
    assert difference.nll_sum == pytest.approx(-10 * np.log(3))
    assert difference.nll_sum_error == pytest.approx(100 * np.log(3) * difference.accuracy_error)
    assert numbers.accuracy_error(0.76, 10_000) == pytest.approx(0.00427, abs=1e-5)


def test_methods_whose_folders_are_elsewhere_keep_their_row_and_are_not_compared() -> None:
    def run(epochs: int) -> dict[str, Any]:
        ways = [{"by": "logits", "start_weight": 0.0, "accuracy": 0.7, "nll": 1.0, "nll_sum": 9.0}]
        curve = {"by": "logits", "epochs": [1], "accuracy": [0.6], "nll": [2.0],
                 "average_accuracy": [0.7], "average_nll": [1.0]}  # fmt: skip
        return {"state": "finished", "epochs": epochs, "averages": ways, "num_images": 9,
                "networks": 2, "curve": curve}  # fmt: skip

    missing = {"state": page.NOT_RUN}
    now = {"runs": {"starts": run(300), "ensemble": run(170), "cyc-swag": missing, "deo": missing},
           "compared": {}}  # fmt: skip
    earlier = {"runs": {"starts": run(200), "ensemble": run(100), "cyc-swag": run(861),
                        "deo": missing}}  # fmt: skip
    assert page._keep_earlier_runs(now, earlier)
    assert now["runs"]["cyc-swag"] == {"starts_of": 200, **run(861)}
    assert now["runs"]["ensemble"] == run(170) and now["runs"]["deo"] == missing
    told = findings.sentences("tiny", now)
    assert told[:2] == [
        "Not run: DEO-mSGD×P10.",
        "Of earlier runs, from other start networks of 200 epochs, and not compared with the rest: "
        "cycSWAG×T10.",
    ]
    assert page._keep_earlier_runs(later := {"runs": {**now["runs"], "cyc-swag": missing}}, now)
    assert later["runs"]["cyc-swag"]["starts_of"] == 200  # of its own starts, still
    assert not page._keep_earlier_runs(now, None)


def test_time_is_kept_when_a_signal_ends_a_run(place, tmp_path: Path, monkeypatch) -> None:
    steps = iter((0, 40))  # of the run before and after

    def signalled(folder: Path, *more: Any, **display: Any) -> rx.Trained:
        folder.mkdir(parents=True)
        raise SystemExit(143)

    monkeypatch.setattr(table2, "_start_or_resume", signalled)
    monkeypatch.setattr(table2, "_steps", lambda folder: next(steps))
    with pytest.raises(SystemExit):
        table2.run_all(settings_of(place, "starts"), tmp_path)
    assert table2._read_times(tmp_path / "tiny" / "starts")["steps"] == 40
