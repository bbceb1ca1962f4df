"""The command `replicax predict`."""

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

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
        Path,
        typer.Argument(
            metavar="INPUTS",
            help="Images or rows: .npy, or .npz of one array, or of inputs with labels or targets, "
            "which score the predictions, and perhaps weights.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write probabilities (image, class) to a .npy file; for regression, mean and sd "
            "(and with --interval low and high) to a .npz file.",
        ),
    ] = None,
    members: Annotated[
        bool,
        typer.Option(
            "--members", help="Write the predictions of every network (network, image, class)."
        ),
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(metavar="LEVEL", help="For regression: the level of central intervals, 0.9."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Other inputs: how well the uncertainty tells them from INPUTS."
        ),
    ] = None,
    by: Annotated[str, typer.Option(help="Average probabilities, or logits.")] = "probabilities",
    model: flags.ModelAgain = None,
    data: flags.DataAgain = None,
    likelihood: flags.LikelihoodAgain = None,
    as_json: flags.Json = False,
    **given: Any,
) -> None:
    """Predict classes or real numbers with the networks of a run.

    Uses the averaged networks, without those from before the burn-in. The training data are not
    needed. Images are uint8, like those of the data set, or floats from 0 to 1 or from 0 to 255.
    Prints how often each class is the most probable one, and the mean uncertainty in nats: of the
    average (total), of the single networks (aleatoric), and of their disagreement (epistemic).
    For regression these are standard deviations, as root mean squares. With labels or targets, also
    the scores of the average; with --against, the AUROC of the uncertainty as a detector of the
    other inputs.

    \b
    Example
      replicax predict runs/deo-star-1 images.npy --out probs.npy
      replicax predict runs/deep-ensemble-1 houses.npz --interval 0.9 --against other.npy --json
    """
    import replicax as rx
    from replicax.errors import choose
    from replicax.networks.outcomes import Classes
    from replicax.networks.predictor import as_inputs
    from replicax.networks.report import told_apart

    rows, others = _read(inputs), None if against is None else _read(against)
    instead = "predict there with rx.load(folder, network).predict(inputs)"
    named = read_named(run_dir, "predict", model, data, instead, runs=("model",))
    with output.quietly(as_json):
        trained = cast("Trained", rx.load(run_dir))
        if trained.metadata.kind != "train":
            raise ValueError(f"{run_dir} contains no networks, and nothing to predict with.")
        if trained.predicts is not None:
            network = named.network_again(trained.predicts)
        else:  # a folder that does not store its predictor
            named = read_named(run_dir, "predict", model, data, instead, likelihood=likelihood)
            folder = absolute_folder(given["data_dir"]) or named.data_dir
            network, _ = replace(named, data_dir=folder).problem()
        trained = cast("Trained", rx.load(run_dir, network))
        law = trained.predictor.likelihood
        choose("--by", by, law.ways)
        suffix = ".npy" if isinstance(law, Classes) else ".npz"
        if out is not None and out.suffix != suffix:
            raise ValueError(f"--out is {str(out)!r}; write the name of a {suffix} file.")
        if out is not None and out.exists() and out.samefile(inputs):
            raise ValueError(f"--out is {str(out)!r}, the file of the inputs: write another.")
        numbers, predicted = _predict(trained, rows, members, by, interval)
        if others is not None:
            inside, outside = (as_inputs(x.inputs, trained.predictor.like) for x in (rows, others))
            numbers["against"] = {"file": str(against), **told_apart(trained, inside, outside)}
    if out is not None:
        _write(out, predicted)
    numbers["out"] = None if out is None else str(out)
    output.show(numbers, as_json, _render)


class _Rows(NamedTuple):
    """What a file of inputs holds."""

    inputs: Any
    outcomes: Any = None  # labels or targets
    weights: Any = None


def _predict(
    trained: "Trained", rows: _Rows, members: bool, by: str, interval: float | None
) -> tuple[dict[str, Any], Any]:
    """Return a summary of the predictions, and the predictions."""
    import numpy as np

    import replicax as rx
    from replicax.networks.outcomes import Classes
    from replicax.networks.predictor import as_inputs

    law, weights = trained.predictor.likelihood, trained.networks.weight
    inputs = as_inputs(rows.inputs, trained.predictor.like)
    if interval is not None:
        average = trained.predict(inputs, members=members, interval=interval)
    each = trained.predict(inputs, members=True)
    parts = rx.predict.uncertainty(each, weights)
    numbers: dict[str, Any] = {"networks": len(weights), "by": by}
    if isinstance(law, Classes):
        average = rx.predict.log_probabilities(rx.predict.average(each, weights), by)  # type: ignore
        average, each = np.exp(average), np.exp(each)
        numbers |= {"images": len(average), **_counted(average)}
    else:
        if interval is None:
            average = each._replace(mean=np.average(each.mean, 0, weights), sd=parts.total)
        numbers["rows"] = len(each.mean[0])
        parts = parts._make(np.sqrt(np.mean(part**2)) for part in parts)
    numbers["uncertainty"] = {name: float(np.mean(x)) for name, x in parts._asdict().items()}
    if rows.outcomes is not None:
        known = (inputs, *(part for part in rows[1:] if part is not None))
        numbers["scores"] = trained.metrics(by, data=known)._asdict()
    return numbers, each if members else average


def _counted(average: Any) -> dict[str, Any]:
    """Return how many rows have each class as the most probable one, or each label; and the mean
    probability of the former."""
    import numpy as np

    top = average.argmax(axis=-1)
    if top.ndim == 2:
        found = {"labels": top.sum(axis=0).tolist()}
    else:
        found = {"classes": np.bincount(top, minlength=average.shape[1]).tolist()}
    return {**found, "confidence": float(average.max(axis=-1).mean())}


def _read(path: Path) -> _Rows:
    """Return the arrays of a file."""
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
        return _Rows(content)
    names = set(content.files)
    if len(names) == 1:
        return _Rows(content[content.files[0]])
    outcomes = names & {"labels", "targets"}
    if "inputs" not in names or len(outcomes) != 1 or names - {"inputs", "weights", *outcomes}:
        raise ValueError(
            f"{path} holds {len(content.files)} arrays ({', '.join(content.files)}); give a file "
            "with the inputs alone, or with inputs, labels or targets, and perhaps weights."
        )
    weights = content["weights"] if "weights" in names else None
    return _Rows(content["inputs"], content[outcomes.pop()], weights)


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
    has_classes = "confidence" in numbers
    count = numbers["images"] if has_classes else numbers["rows"]
    lines = [f"{count} rows, {numbers['networks']} networks averaged by {numbers['by']}"]
    if has_classes:
        kind, found = ("classes", "Most probable classes") if "classes" in numbers else (
            "labels", "Rows with each label")  # fmt: skip
        most = sorted(enumerate(numbers[kind]), key=lambda item: -item[1])[:10]
        lines.append(f"{found}: {', '.join(f'{name} ({count})' for name, count in most if count)}")
        lines.append(f"Mean confidence {numbers['confidence']:.4f}; uncertainty in nats: {parts}")
    else:
        lines.append(f"Standard deviations, root mean square: {parts}")
    if "scores" in numbers:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in numbers["scores"].items())
        lines.append(f"Scores: {scores}")
    if "against" in numbers:
        words = "AUROC against {file}: {auroc:.4f} by the total, {auroc_epistemic:.4f} by the "
        lines.append((words + "epistemic uncertainty").format(**numbers["against"]))
    if numbers["out"] is not None:
        lines.append(f"Predictions are in {numbers['out']}")
    return "\n".join(lines)
