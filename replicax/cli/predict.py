"""The command `replicax predict`."""

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from replicax.cli import flags, output
from replicax.cli.folders import absolute_folder, read_named
from replicax.networks.by_name import NamedProblem

if TYPE_CHECKING:
    from replicax.networks.trained import Trained


@flags.of(NamedProblem, names=("data_dir",))
def predict(
    run_dir: flags.RunDir,
    inputs: Annotated[
        Path, typer.Argument(metavar="INPUTS", help="Images or rows: .npy, or .npz of one array.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write probabilities (image, class) to a .npy file; for regression, mean and sd "
            "to a .npz file.",
        ),
    ] = None,
    members: Annotated[
        bool,
        typer.Option(
            "--members", help="Write the predictions of every network (network, image, class)."
        ),
    ] = False,
    by: Annotated[str, typer.Option(help="Average probabilities, or logits.")] = "probabilities",
    model: flags.ModelAgain = None,
    data: flags.DataAgain = None,
    as_json: flags.Json = False,
    **given: Any,
) -> None:
    """Predict classes or real numbers with the networks of a run.

    Uses the averaged networks, without those from before the burn-in. The training data are not
    needed. Images are uint8, like those of the data set, or floats from 0 to 1 or from 0 to 255.
    Prints how often each class is the most probable one, and the mean uncertainty in nats: of the
    average (total), of the single networks (aleatoric), and of their disagreement (epistemic).
    For regression these are standard deviations, as root mean squares.

    \b
    Example
      replicax predict runs/deo-star-1 images.npy --out probs.npy
    """
    import replicax as rx
    from replicax.errors import choose

    rows = _read(inputs)
    instead = "predict there with rx.load(folder, network).predict(inputs)"
    named = read_named(run_dir, "predict", model, data, instead, runs=("model",))
    with output.quietly(as_json):
        trained = cast("Trained", rx.load(run_dir))
        if trained.metadata.kind != "train":
            raise ValueError(f"{run_dir} contains no networks, and nothing to predict with.")
        if trained.predicts is not None:
            network = named.network_again(trained.predicts)
        else:  # a folder that does not store its predictor
            named = read_named(run_dir, "predict", model, data, instead)
            folder = absolute_folder(given["data_dir"]) or named.data_dir
            network, _ = replace(named, data_dir=folder).problem()
        trained = cast("Trained", rx.load(run_dir, network))
        law = trained.predictor.likelihood
        choose("--by", by, law.ways)
        suffix = ".npy" if len(law.ways) > 1 else ".npz"
        if out is not None and out.suffix != suffix:
            raise ValueError(f"--out is {str(out)!r}; write the name of a {suffix} file.")
        if out is not None and out.exists() and out.samefile(inputs):
            raise ValueError(f"--out is {str(out)!r}, the file of the inputs: write another.")
        numbers, predicted = _predict(trained, rows, members, by)
    if out is not None:
        _write(out, predicted)
    numbers["out"] = None if out is None else str(out)
    output.show(numbers, as_json, _render)


def _predict(trained: "Trained", inputs: Any, members: bool, by: str) -> tuple[dict[str, Any], Any]:
    """Return a summary of the predictions, and the predictions."""
    import numpy as np

    import replicax as rx
    from replicax.networks.predictor import as_inputs

    weights = trained.networks.weight
    each = trained.predict(as_inputs(inputs, trained.predictor.like), members=True)
    parts = rx.predict.uncertainty(each, weights)
    has_classes = len(trained.predictor.likelihood.ways) > 1
    if has_classes:
        average = rx.predict.log_probabilities(rx.predict.average(each, weights), by)  # type: ignore
        average, each = np.exp(average), np.exp(each)
    else:
        average = each._replace(mean=np.average(each.mean, 0, weights), sd=parts.total)
    numbers: dict[str, Any] = {"networks": len(weights), "by": by}
    if has_classes:
        top = np.bincount(average.argmax(axis=1), minlength=average.shape[1])
        numbers |= {
            "images": len(each[0] if has_classes else each.mean[0]),
            "classes": top.tolist(),
        }
        numbers["confidence"] = float(average.max(axis=1).mean())
    else:
        numbers["rows"] = len(each[0] if has_classes else each.mean[0])
        parts = parts._make(np.sqrt(np.mean(part**2)) for part in parts)
    numbers["uncertainty"] = {name: float(np.mean(x)) for name, x in parts._asdict().items()}
    return numbers, each if members else average


def _read(path: Path) -> Any:
    """Return the array of a file."""
    import zipfile

    import numpy as np

    from replicax.data.table import check_size
    from replicax.errors import TooLarge

    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    try:
        if zipfile.is_zipfile(path):
            check_size(path)
        content = np.load(path, allow_pickle=False)
    except TooLarge:
        raise
    except (ValueError, EOFError):
        raise ValueError(f"{path} is not a .npy file of numbers; write one with np.save.") from None
    if not hasattr(content, "files"):
        return content
    if len(content.files) != 1:
        raise ValueError(
            f"{path} holds {len(content.files)} arrays ({', '.join(content.files)}); give a file "
            "with the inputs alone."
        )
    return content[content.files[0]]


def _write(path: Path, values: Any) -> None:
    import numpy as np

    from replicax.run.storage.files import write_shown

    content = io.BytesIO()
    if hasattr(values, "_asdict"):
        np.savez(content, **values._asdict())
    else:
        np.save(content, values)
    write_shown(path, content.getvalue(), named=True)


def _render(numbers: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {value:.4g}" for name, value in numbers["uncertainty"].items())
    has_classes = "classes" in numbers
    count = numbers["images"] if has_classes else numbers["rows"]
    lines = [f"{count} rows, {numbers['networks']} networks averaged by {numbers['by']}"]
    if has_classes:
        most = sorted(enumerate(numbers["classes"]), key=lambda item: -item[1])[:10]
        classes = ", ".join(f"{number} ({count})" for number, count in most if count)
        lines.append(f"Most probable classes: {classes}")
        lines.append(f"Mean confidence {numbers['confidence']:.4f}; uncertainty in nats: {parts}")
    else:
        lines.append(f"Standard deviations, root mean square: {parts}")
    if numbers["out"] is not None:
        lines.append(f"Predictions are in {numbers['out']}")
    return "\n".join(lines)
