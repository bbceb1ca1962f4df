"""Write `exchange.md` and its picture from `exchange.json`, the rows of exchange_or_ensemble.py.

python benchmarks/exchange_page.py docs/results
"""

import json
import sys
from pathlib import Path
from typing import Any

from replicax.experiments.shared.page import markdown_table
from replicax.results import figure_style

TITLE = "Does exchange beat a plain ensemble?"
ANSWER = """
**No, not in our measurements.** On CIFAR-100, with networks that start from the same pretrained
ones, DEO⋆ at best ties with a plain ensemble: exchange gives better single networks, but ten
independent networks are more diverse, which makes up for it. Averaging more than the coldest rung
did not help, nor did hotter ladders, higher swap rates, or a ladder from the first epoch on. If all
you want is the average of ten networks, train an ensemble. Exchange is for posteriors whose modes a
chain cannot reach alone, and for one good network.
"""
NOTES = """
All runs average as many networks as there are epochs: an ensemble all ten every tenth epoch, a
ladder one network per epoch, from its K coldest rungs in turn. Settings were compared on held-out
training images; the test images were not used. Not covered: longer runs (40 epochs after the start
networks, where the paper has 500), other networks, and more seeds. Seeds share the start networks,
so their spread is that of the sampling alone.

On the test images, with separate start networks for each of three seeds (30 and 20 epochs), DEO⋆
was behind the ensemble by 0.65 ± 0.04 points, a 95 % interval; [Table 2](table2.md) has the
numbers. Learning rates that fall after a network arrives at the cold end
(`rate_schedule="arrival"`) were only tried on scikit-learn's digits, where they made it worse
([networks](../networks.md#more-than-the-coldest-rung)).
"""


def best(row: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """Return the way to average with the smallest loss by logits."""
    return min(row["ways"].items(), key=lambda way: way[1]["nll_logits"])


def table(rows: list[dict[str, Any]]) -> list[str]:
    head = ["run", "seed", "round trips", "one network: accuracy, %", "NLL", "averaged",
            "by logits: accuracy, %", "NLL", "by probabilities: accuracy, %", "NLL"]  # fmt: skip
    lines = []
    for row in rows:
        alone, (way, found) = row["alone"][0], best(row)
        lines.append([
            row["setting"], str(row["seed"]), str(row["round_trips"]),
            f"{100 * alone['accuracy']:.2f}", f"{alone['nll']:.3f}", way,
            f"{100 * found['accuracy_logits']:.2f}", f"{found['nll_logits']:.4f}",
            f"{100 * found['accuracy_probabilities']:.2f}", f"{found['nll_probabilities']:.4f}",
        ])  # fmt: skip
    return markdown_table(head, lines)


def draw(rows: list[dict[str, Any]]) -> Any:
    """Plot the loss of the average by the number of rungs in it; ensembles are lines across."""
    figure = figure_style.new_figure(8.0, 4.4)
    axes = figure.subplots()
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    colours = dict(zip(settings, [*figure_style.CHAINS, figure_style.ACCENT], strict=False))
    for row in rows:
        losses = [found["nll_logits"] for found in row["ways"].values()]
        again = row["seed"] != rows[0]["seed"]
        style: dict = {"color": colours[row["setting"]], "alpha": 0.55 if again else 1.0}
        style["label"] = None if again else row["setting"]
        if row["options"].get("method") == "ensemble":
            axes.axhline(losses[0], ls="--", lw=1.4, **style)
        else:
            axes.plot(range(1, len(losses) + 1), losses, "o-", ms=4, **style)
    title = "A plain ensemble (dashed) has the smallest loss, however many rungs are averaged"
    figure_style.label(
        axes, "coldest rungs that are averaged in turn (pale: another seed)", "NLL by logits", title
    )
    figure_style.legend(axes, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def main(folder: Path) -> None:
    found = json.loads((folder / "exchange.json").read_text())
    rows, chosen = found["rows"], found["arguments"]
    setting = (
        f"{chosen['model']}, {chosen['data']}, ten networks, {chosen['start_epochs']} epochs of "
        f"start networks, {chosen['epochs']} of sampling, batches of {chosen['batch_size']}, "
        f"tested on {chosen['validation']} held-out training images; {found['machine']}. A run "
        f"takes {min(r['seconds'] for r in rows):.0f} to {max(r['seconds'] for r in rows):.0f} s."
    )
    name = (
        "A name such as “S .02, .005-.05” is DEO⋆ with that target swap rate and those learning "
        "rates; “scratch” starts from new networks and has the epochs of both. Of every ladder the "
        "best number of rungs is shown, which favours ladders; the picture shows all."
    )
    figure_style.save(draw(rows), folder / "exchange-rungs.png")
    lines = [f"# {TITLE}", ANSWER.rstrip(), "", setting, "", *table(rows), "", name, NOTES.rstrip()]
    lines += ["", "![NLL by the number of rungs averaged](exchange-rungs.png)", ""]
    lines += [*(f"    {command}" for command in found["commands"]), ""]
    (folder / "exchange.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
