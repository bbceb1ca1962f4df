"""The command `replicax predict`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import output
from replicax.cli.arguments import Json, RunDir
from replicax.cli.train import DataDir, absolute_folder, read_task

_ROWS = 2048  # whose predictions by every network are in memory at once


def predict(
    run_dir: RunDir,
    images: Annotated[
        Path, typer.Argument(metavar="IMAGES", help="Images in a .npy file, or in a .npz of one.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write probabilities (image, class) to a .npy file."),
    ] = None,
    members: Annotated[
        bool,
        typer.Option("--members", help="Write those of every network (network, image, class)."),
    ] = False,
    by: Annotated[str, typer.Option(help="Average probabilities, or logits.")] = "probabilities",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Predict the classes of images with the networks of a run.

    The networks of the average predict, those from before the burn-in left out. Images are uint8
    as the data set of the run has them, or floats from 0 to 1 or from 0 to 255. Prints how often
    each class is the most probable one, and the mean uncertainty in nats: of the average (total),
    of its networks by themselves (aleatoric), and by their disagreement (epistemic).

    \b
    Example
      replicax predict runs/deo-star-1 images.npy --out probs.npy
    """
    from replicax.errors import choose

    choose("--by", by, ("probabilities", "logits"))
    inputs = _read(images)
    if out is not None and out.suffix != ".npy":
        raise ValueError(f"--out is {str(out)!r}; write the name of a .npy file.")
    task = read_task(run_dir, "predict there with rx.load(folder, problem).predict(inputs)")
    with output.quietly(as_json):
        problem, _ = replace(task, data_dir=absolute_folder(data_dir) or task.data_dir).problem()
        numbers, predicted = _predict(run_dir, problem, inputs, members, by)
    if out is not None:
        _write(out, predicted)
    numbers["out"] = None if out is None else str(out)
    output.show(numbers, as_json, _render)


def _predict(
    run_dir: Path, problem: Any, inputs: Any, members: bool, by: str
) -> tuple[dict[str, Any], Any]:
    """Return a summary of the predictions, and the probabilities."""
    import numpy as np

    import replicax as rx
    from replicax.networks.inputs import as_inputs
    from replicax.networks.trained import Trained

    trained = rx.load(run_dir, problem)
    assert isinstance(trained, Trained), "its metadata have a task"
    weights = trained.networks.weight
    inputs = as_inputs(inputs, problem.predictor.like)  # all at once: their range tells their unit
    written, averages, parts = [], [], []
    for start in range(0, len(inputs), _ROWS):
        each = trained.predict(inputs[start : start + _ROWS], members=True)
        average = rx.predict.log_probabilities(rx.predict.average(each, weights), by)  # type: ignore
        parts.append(rx.predict.uncertainty(each, weights))
        averages.append(np.exp(average))
        written.append(np.exp(each) if members else averages[-1])
    probabilities = np.concatenate(averages)
    names = ("total", "aleatoric", "epistemic")
    numbers = {
        "images": len(probabilities),
        "networks": len(weights),
        "by": by,
        "classes": np.bincount(
            probabilities.argmax(axis=1), minlength=probabilities.shape[1]
        ).tolist(),
        "confidence": float(probabilities.max(axis=1).mean()),
        "uncertainty": {
            name: float(np.mean(np.concatenate([getattr(part, name) for part in parts])))
            for name in names
        },
    }
    return numbers, np.concatenate(written, axis=1 if members else 0)


def _read(path: Path) -> Any:
    """Return the array of a file."""
    import numpy as np

    try:
        content = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        raise ValueError(f"{path} is no .npy file of numbers; write one with np.save.") from None
    if not hasattr(content, "files"):
        return content
    if len(content.files) != 1:
        raise ValueError(
            f"{path} holds {len(content.files)} arrays ({', '.join(content.files)}); give a file "
            "with the images alone."
        )
    return content[content.files[0]]


def _write(path: Path, values: Any) -> None:
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def _render(numbers: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {value:.4f}" for name, value in numbers["uncertainty"].items())
    most = sorted(enumerate(numbers["classes"]), key=lambda item: -item[1])[:10]
    classes = ", ".join(f"{number} ({count})" for number, count in most if count)
    written = "" if numbers["out"] is None else f"\nProbabilities are in {numbers['out']}"
    return (
        f"{numbers['images']} images, {numbers['networks']} networks averaged by {numbers['by']}\n"
        f"Most probable classes: {classes}\n"
        f"Mean confidence {numbers['confidence']:.4f}; uncertainty in nats: {parts}{written}"
    )
