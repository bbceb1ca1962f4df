"""`Trained`: the result of a training, the networks and their average on unseen data."""

from pathlib import Path
from typing import Any

import numpy as np

from replicax.networks import predict
from replicax.networks.options import TrainOptions
from replicax.networks.predict import Average, Metrics
from replicax.results.posterior import Posterior

START_WEIGHT = 10.0  # of a start network beside the network of an epoch, as the authors have it


class Trained(Posterior):
    """A `Posterior` over networks, of which predictions are kept rather than parameters."""

    def __repr__(self) -> str:
        return (
            f"Trained({self.method}, {self.num_epochs} epochs of {self.num_replicas} networks; "
            f"{int(self.average.weight)} averaged; {self.result.code})"
        )

    @property
    def method(self) -> str:
        return self.train_options.method_name

    @property
    def train_options(self) -> TrainOptions:
        """The options of `rx.train`, gains as plain data."""
        return TrainOptions.recorded(self.metadata.training or {})

    @property
    def num_epochs(self) -> int:
        """Epochs done."""
        return self.num_steps // (self.metadata.steps_per_epoch or 1)

    @property
    def epochs(self) -> dict[str, np.ndarray]:
        """Test results by name, each (test, ...): after every epoch, or every tenth where
        nothing is averaged; `epoch` says after which.

        `nll` and `accuracy` of the network on each rung (epoch, rung); of the average so far,
        `average_nll_probabilities`, `average_accuracy_logits` and so on; its `weight`.
        """
        records, every = self._records, self.train_options.test_every
        columns = {name: records.read("epochs", name) for name in records.names("epochs")}
        return {"epoch": every * (1 + np.arange(records.length("epochs"))), **columns}

    @property
    def average(self) -> Average:
        """Running sums over the networks that were picked."""
        return self._average("average")

    @property
    def starts(self) -> Average:
        """Running sums over the start networks, where they were asked for."""
        return self._average("starts")

    def _average(self, name: str) -> Average:
        parts = {field: self._final(f"{name}.{field}") for field in Average._fields}
        return Average(**parts)

    def log_probabilities(self, by: str = "probabilities", start_weight: float = 0.0) -> np.ndarray:
        """Return the predictions of the average, (image, class); start networks count
        `start_weight` each."""
        starts = Average(*(start_weight * part for part in self.starts))
        merged = predict.merge(self.average, starts) if start_weight else self.average
        return np.asarray(predict.log_probabilities(merged, by))  # type: ignore[arg-type]

    @property
    def labels(self) -> np.ndarray:
        """The true classes of the test."""
        return self._final("labels")

    def metrics(self, by: str = "probabilities", start_weight: float = 0.0) -> Metrics:
        """Return accuracy, likelihood and calibration of the average on the test."""
        return predict.evaluate(self.log_probabilities(by, start_weight), self.labels)

    def problems(self) -> list[str]:
        """Reasons not to trust the run, as sentences."""
        from replicax.networks.problems import find_training_problems

        return [*find_training_problems(self), *super().problems()]

    def summary(self) -> dict[str, Any]:
        """Return the numbers of the run as plain data."""
        from replicax.networks.summary import summarise

        return summarise(self)

    def plot(self, out: str | Path | None = None) -> dict[str, Any]:
        """Return figures by name, written to the folder `out` if given: epochs, ladder and
        exchange where there is one, and the calibration of the average."""
        from replicax.networks.plots import plot_training
        from replicax.results.figure_style import figure_folder

        return plot_training(self, None if out is None else figure_folder(out))

    def report(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, out: str | Path | None = None, images: Any = None
    ) -> Path:
        """Write the training as one HTML page to look at, and return its path (needs the extra
        `report`).

        Args:
            out: an HTML file, or a folder; by default `report.html` in the run folder.
            images: the test images as bytes (image, row, column, channel), or the
                `rx.data.Dataset`, for a look at the most uncertain ones; runs of the command line
                know theirs.
        """
        from replicax.networks.report import build_page
        from replicax.results.report.build import check_out, write_page

        check_out(self, out)
        return write_page(self, out, build_page(self, images))

    @property
    def restarts(self) -> np.ndarray:
        """How often a network on each rung broke and was restarted  (rung,)."""
        return self._final("restarts")[0]
