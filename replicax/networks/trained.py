"""`Trained`: the result of a training: networks and their average on test data."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.errors import choose, show
from replicax.networks import evaluate, outcomes
from replicax.networks.by_name import NamedProblem
from replicax.networks.checks import (
    find_rhat,
    find_training_problems,
    mixing_problem,
    why_none_averaged,
    why_none_kept,
)
from replicax.networks.classification import classifier
from replicax.networks.evaluate import CompiledTest, Count, Networks
from replicax.networks.outcomes import Classes, Numbers, NumberSums, Outcomes
from replicax.networks.pairs import as_weights, check_pair
from replicax.networks.predict import Average
from replicax.networks.predictor import Predictor, as_inputs
from replicax.networks.rates import kinetic_heating, kinetic_problem
from replicax.networks.regression import regressor
from replicax.networks.task import Supervised, check_problem, tested_by
from replicax.networks.tempered import find_heating, heating_problem
from replicax.networks.validation import decision
from replicax.nn.network import Network
from replicax.results.posterior import Posterior
from replicax.run import trees
from replicax.run.options import Training
from replicax.run.parts import Clock, clock_of
from replicax.run.records import Records
from replicax.run.storage.metadata import Predicts

if TYPE_CHECKING:
    from replicax.results.report import Section


class Trained(Posterior):
    """A `Posterior` over networks: their average on the test data, and predictions for new
    inputs."""

    def __init__(self, records: Records, like: Any = None, target: Any = None) -> None:
        super().__init__(records, like, target)
        if target is not None and not _is_network(target):
            check_problem(target)

    def __repr__(self) -> str:
        return (
            f"Trained({self.method}, {self.num_epochs} epochs of {self.num_replicas} networks; "
            f"{int(self.average.weight)} averaged; {self.result.code})"
        )

    @property
    def method(self) -> str:
        return self.metadata.method.name

    @property
    def clock(self) -> Clock:
        """Epochs of the run and of its parts."""
        run, method = self.metadata.run, self.metadata.method
        assert isinstance(run, Training)
        return clock_of(run, method, self.metadata.steps_per_epoch or 1)

    @property
    def num_epochs(self) -> int:
        """Epochs done."""
        return self.num_steps // (self.metadata.steps_per_epoch or 1)

    @property
    def energy_scale(self) -> float:
        """Energy per mean loss in the records of learning rates, energies and buffer."""
        is_total = self.metadata.resolved.tempers_likelihood or (
            self.metadata.gone.get("unit") == "total"
        )
        return float(self.metadata.num_rows or 1) if is_total else 1.0

    @property
    def temperature_scale(self) -> float:
        """Temperature of the posterior per temperature of the records."""
        return (self.metadata.num_rows or 1) / self.energy_scale

    @property
    def epochs(self) -> dict[str, np.ndarray]:
        """Test results by name, each (test, ...): after every epoch, or every tenth if nothing is
        averaged; `epoch` has the epoch of each.

        `nll` and `accuracy`, or `rmse`, of the network on each rung (epoch, rung); of the average
        so far, `average_nll_probabilities`, `average_accuracy_logits` and so on; its `weight`.
        """
        records, every = self._records, self.clock.test_every
        columns = {name: records.read("epochs", name) for name in records.names("epochs")}
        return {"epoch": every * (1 + np.arange(records.length("epochs"))), **columns}

    @property
    def likelihood(self) -> Outcomes | None:
        """The likelihood of targets given the outputs of networks, None without a test."""
        content = self.metadata.resolved.likelihood
        return None if content is None else outcomes.from_json(content)

    def _likelihood_of_test(self) -> Outcomes:
        if self.likelihood is None:
            raise ValueError(
                "The problem had no test, so networks were not evaluated: write test=..., or "
                "predict with trained.predict(inputs)."
            )
        return self.likelihood

    @property
    def average(self) -> Any:
        """Running sums over the averaged networks, such as an `rx.predict.Average`."""
        if self.likelihood is None:
            return Count(self._final("average.weight"))
        kind = NumberSums if "average.deviation" in self._records.final else Average
        return kind(**{field: self._final(f"average.{field}") for field in kind._fields})

    def _sums(self) -> Any:
        """Return the average, which must not be empty."""
        if not float(self.average.weight):
            raise ValueError(why_none_averaged(self))
        return self.average

    def log_probabilities(self, by: str = "probabilities") -> np.ndarray:
        """Return the predictions of the average for the test, (image, class)."""
        if not isinstance(self._likelihood_of_test(), Classes):
            raise ValueError("A regression has no classes: trained.predictions() has mean and sd.")
        return self.predictions(by)

    def predictions(self, by: str = "probabilities") -> Any:
        """Return the predictions of the average for the test data: log-probabilities of classes, or
        mean and standard deviation of real numbers."""
        likelihood = self._likelihood_of_test()
        choose("by", by, likelihood.ways)
        return likelihood.predictive(self._sums(), self._final("labels"), by)

    @property
    def labels(self) -> np.ndarray:
        """The true targets of the test: class numbers (row,), or real numbers (row,) or (row,
        target)."""
        return self._likelihood_of_test().in_user_unit(self._final("labels"))

    @property
    def row_weights(self) -> np.ndarray | None:
        """The weights of the rows of the test; None if it has none."""
        known = "row_weights" in self._records.final
        return self._final("row_weights") if known else None

    def metrics(self, by: str = "probabilities", data: Any = None) -> Any:
        """Return the metrics of the average on the test: accuracy, likelihood and calibration of
        classes, or error, likelihood and coverage of numbers.

        With `data`, arrays (inputs, labels or targets) and perhaps weights, they are those of the
        networks that were kept on these rows.
        """
        if data is not None:
            return self._metrics_on(data, by)
        likelihood = self._likelihood_of_test()
        choose("by", by, likelihood.ways)
        return likelihood.metrics(self._sums(), self._final("labels"), by, self.row_weights)

    def _metrics_on(self, data: Any, by: str) -> Any:
        predictor = self.predictor
        law = predictor.likelihood
        choose("by", by, law.ways)
        if not isinstance(data, tuple | list) or len(data) not in (2, 3):
            check_pair("data", data, "labels or targets")
        inputs = as_inputs(data[0], predictor.like)
        targets = law.as_targets("data[1]", np.asarray(data[1]))
        weights = [as_weights("data", third, targets) for third in data[2:]]
        if len(targets) != len(jax.tree.leaves(inputs)[0]):
            raise ValueError(
                f"data has {len(jax.tree.leaves(inputs)[0])} inputs and {len(targets)} labels or "
                "targets: give equally many rows of both."
            )
        test = CompiledTest(tested_by(predictor, inputs, targets, *weights))
        sums = test.add(test.empty(), self.points, self.networks.weight)
        return law.metrics(sums, targets, by, *weights)

    @functools.cached_property
    def networks(self) -> Networks:
        """The averaged networks that were kept: evenly spaced, none from before `burn_in`."""
        if self._like is None and self.metadata.params.structure is None:
            raise ValueError(
                f"The params of the run in {self.run_dir} have custom containers, which a folder "
                "cannot store: train with params and model_state of dicts, lists and tuples."
            )
        networks = evaluate.read(self._records, self._like)
        if networks is None:
            raise ValueError(why_none_kept(self))
        return networks

    def predict(
        self,
        inputs: Any,
        *,
        members: bool = False,
        by: str = "probabilities",
        interval: float | None = None,
        problem: Any = None,
    ) -> Any:
        """Return the predictions of the model average for any inputs.

        For classes these are log-probabilities (row, class), for several labels of each row
        (row, label, 2), and for numbers their mean and standard deviation (row,). They are computed
        on the device, in pieces.

        Args:
            inputs: rows like those of the training data; images as uint8, or as floats from 0 to 1
                or from 0 to 255.
            members: return the predictions of every network of the average, with a leading axis
                (network, ...), in the order of `trained.networks`, which has their weights.
            by: average "probabilities", which is the Bayesian model average, or "logits".
            interval: of numbers, the level of a central interval, such as 0.9: the result has its
                ends, too, `low` and `high`, by the quantiles of the mixture over networks.
            problem: the network or its problem; needed after `rx.load(folder)` without a network,
                unless the command line trained a network with a name.
        """
        predictor = self.predictor if problem is None else self._predictor_of(problem)
        inputs = as_inputs(inputs, predictor.like)
        predictor.warn_of_others(inputs)
        weights = self.networks.weight
        return predictor.predict(self.points, weights, inputs, members, by, interval)

    @functools.cached_property
    def points(self) -> Any:
        """The networks on the device, copied there only once."""
        return jax.tree.map(jnp.asarray, (self.networks.params, self.networks.model_state))

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The predictor of this run, from its problem or its network."""
        known = self._named_network if self._target is None else self._target
        if known is None:
            raise ValueError(
                "A run folder does not store the function of its network: open it with "
                "rx.load(folder, network), or write trained.predict(inputs, problem=network)."
            )
        return self._predictor_of(known)

    def _predictor_of(self, known: Any) -> Predictor:
        """Return the predictor of a problem, or of a network as the folder describes it."""
        if _is_network(known):
            if self.predicts is None:
                raise ValueError(
                    "The folder does not store how its networks predict, because its problem is a "
                    "loss, its likelihood is your own or it comes from an earlier version: give "
                    "the problem instead of the network."
                )
            predictor = predictor_of(self.predicts, known)
        else:
            predictor = check_problem(known).predictor
        if predictor is None:
            raise ValueError(
                "The problem is a loss without predictions: write rx.supervised(..., logits=...), "
                "a function logits(params, model_state, inputs)."
            )
        one = jax.tree.map(lambda x: x[0], self.points)
        predictor.check_start(one, "networks of the run have", "this network")
        predictor.warn_unless(None if self.predicts is None else self.predicts.probe, one)
        return predictor

    @property
    def predicts(self) -> Predicts | None:
        """Shapes, classes and units that a network needs to predict again."""
        return self.metadata.resolved.predicts

    @property
    def _named_network(self) -> Any:
        """The network of a run of the command line, or its problem if the folder does not describe
        its predictor; None if it needs user code."""
        named = NamedProblem.from_note(self.metadata.note)
        if named is None or ":" in named.model or ":" in (named.likelihood or ""):
            return None
        if self.predicts is not None:
            return named.network_again(self.predicts)
        return None if ":" in named.data else named.problem()[0]

    def save(self, folder: str | Path) -> Path:
        """Write everything into a new folder that `rx.load` opens."""
        if self.run_dir is None and isinstance(self._target, Supervised):
            # What the network is known by, which runs in memory do not compute.
            known = replace(self.metadata.resolved, **self._target.describe(self._like))
            self._records.write_metadata(replace(self.metadata, resolved=known))
        return super().save(folder)

    def problems(self) -> list[str]:
        """Reasons not to trust the run, as sentences."""
        measures = self.metadata.method.measures_rates
        hot = kinetic_problem(self) if measures else heating_problem(self.heating, self.method)
        unmixed = mixing_problem(self.rhat_of_members, self.metadata.method)
        found = [sentence for sentence in (hot, unmixed) if sentence]
        return [*find_training_problems(self), *found, *super().problems()]

    @functools.cached_property
    def heating(self) -> float | None:
        """Relative excess temperature of the coldest network, for methods that sample the
        posterior; None for others, or if it cannot be measured. By its momentum, measured in the
        run, where rates are; else by the noise of mini-batches."""
        if not self.metadata.method.measures_rates:
            return find_heating(self)
        found = kinetic_heating(self)
        return None if found is None else found[0]

    @functools.cached_property
    def rhat_of_members(self) -> float | None:
        """R-hat over the members of what sampled networks predict, 1 where they have mixed; None
        where nothing is sampled, or too little was kept."""
        return find_rhat(self)

    def summary(self) -> dict[str, Any]:
        """Return the numbers of the run as plain data."""
        from replicax.networks.report import summarise

        return summarise(self)

    def plot(self, out: str | Path | None = None) -> dict[str, Any]:
        """Return figures by name, written to the folder `out` if given: epochs, the calibration of
        the average, and ladder and swaps where there is an exchange."""
        from replicax.networks.report import plot_training
        from replicax.results.figure_style import figure_folder

        return plot_training(self, None if out is None else figure_folder(out))

    def _sections(self) -> "list[Section]":
        from replicax.networks.report import sections_of

        return sections_of(self)

    @property
    def decision(self) -> str | None:
        """When the networks of `ensemble-then-sample` were sampled, and why, in a sentence; None of
        other methods."""
        method = self.metadata.method
        if method.sample_from is None:
            return None
        begun, losses = (self._final(f"validation.{name}") for name in ("begun", "losses"))
        return decision(method, self.clock, int(begun), losses)

    @property
    def restarts(self) -> np.ndarray:
        """How often a network on each rung diverged and was restarted  (rung,)."""
        return self._final("restarts")[0]


def _is_network(given: Any) -> bool:
    is_function = callable(given) and not isinstance(given, Supervised | type)
    return isinstance(given, Network) or is_function


def predictor_of(predicts: Predicts, network: Any) -> Predictor:
    """Return the predictor that `Predictor.describe` described, for a network that the user passes
    again."""
    law = outcomes.from_json(predicts.likelihood)
    like = row_of(predicts)
    if isinstance(law, Numbers):
        return replace(regressor(network, law, predicts.noise, like), seen=predicts.seen)
    if not isinstance(network, Network) or law.num_classes is None:
        raise ValueError(f"The network is {show(network)}; give an rx.nn.Network.")
    made = classifier(network, law, like, predicts.pixels)
    return replace(made, seen=predicts.seen)


def row_of(predicts: Predicts) -> Any:
    """Return shape and dtype of a row of the inputs, None if they were not known."""
    return None if predicts.inputs is None else trees.shapes_of(predicts.inputs)


def num_outputs(predicts: Predicts) -> int:
    """Return the number of outputs of the network."""
    law = outcomes.from_json(predicts.likelihood)
    if isinstance(law, Classes):
        return law.num_outputs
    return len(law.centre) * (2 if predicts.noise == "network" else 1)
