"""`Outputs`: best points, summaries, figures, predictions and copies of a posterior."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.errors import check_folder
from replicax.run import plain
from replicax.run.storage.folder import save_copy

if TYPE_CHECKING:
    from replicax.results.evidence import Evidence


class Outputs:
    """The methods of `Posterior` that compute something on request."""

    @property
    def best(self: Any) -> tuple[Any, float]:
        """The lowest-energy point of any chain, and its recorded energy.

        Over all replicas and steps with schedule="exactly_one", else over the draws.
        """
        points, energies = self._best_leaves()
        chain = int(np.argmin(energies))
        return self._values([leaf[chain] for leaf in points], 0), float(energies[chain])

    @property
    def best_by_chain(self: Any) -> tuple[Any, np.ndarray]:
        """The lowest-energy point of each chain, and its recorded energy  (chain, ...).

        With noisy energies, the lowest one is partly luck: evaluate the point again.
        """
        leaves, energies = self._best_leaves()
        return self._values(leaves, 1), energies

    def _best_leaves(self: Any) -> tuple[list[np.ndarray], np.ndarray]:
        names = self.metadata.params["names"]
        if self.options["energy_at"] == "before" and not self.metadata.resolved["track_best"]:
            raise ValueError(
                'With energy_at="before" the energy of a draw is that of the point before its '
                "move, so the best point is not known from the draws: write "
                'method=rx.deo_star(..., energy_at="moved"), or schedule="exactly_one" in it, '
                "which keeps the best point of all replicas."
            )
        if self.metadata.resolved["track_best"]:
            leaves = [self._final(f"best.{i:06d}") for i in range(len(names))]
            return leaves, self._final("best_energy")
        energies = self.energies
        if energies.size == 0:
            raise ValueError("No draws were kept, so there is no best one.")
        energies = np.where(np.isfinite(energies), energies, np.inf)
        chains, draw = np.arange(self.num_chains), np.argmin(energies, axis=1)
        points = [self._draws(f"params.{name}", 0)[chains, draw] for name in names]
        return points, energies[chains, draw]

    @property
    def barrier(self: Any) -> np.ndarray:
        """Sum of the rejection rates of all pairs, for rules with temperatures  (chain,).

        Twice the barrier plus one is a good number of rungs.
        """
        return np.sum(1 - self.verdict_rate, axis=1)

    @property
    def replicas_advised(self: Any) -> int | None:
        """The number of replicas at which pairs of this ladder would reject half of their attempts,
        by its barrier; None for rules without temperatures."""
        if self.options["rule"] == "deterministic" or self.num_replicas < 2:
            return None
        return int(np.ceil(2 * self.barrier.max())) + 1

    def log_evidence(self: Any) -> "Evidence":
        """Log of the integral of prior x likelihood, with its standard error.

        For `rx.bayesian` posteriors without mini-batches, with the prior on the hottest rung.
        """
        from replicax.results.evidence import evidence_of

        return evidence_of(self)

    def replica_rhat(self: Any) -> dict[str, float]:
        """R-hat over replicas, each followed through the ladder, of every component by name.

        Near 1 if all replicas bring the same draws to the coldest rung, and above 1.05 if each
        stays in its own mode, which R-hat over chains does not detect. NaN if replicas reached the
        coldest rung too rarely. It needs different starts: replicas that all start in one mode
        agree.
        """
        from replicax.results.diagnostics import replica_rhat

        return replica_rhat(self, self.components())

    def summary(self: Any) -> dict[str, Any]:
        """Swap rates, round trips, R-hat and effective sizes: a dict for JSON, which prints as
        tables."""
        from replicax.results.summary import summarise

        return summarise(self)

    def plot(self: Any, out: str | Path | None = None, var_names: Any = None) -> Any:
        """Figures of the run; written to the folder `out` if given, and returned by name.

        `var_names` are the parameters whose draws are shown, such as ["mu", "theta[3]"]; by default
        the first few.
        """
        from replicax.results.figure_style import figure_folder
        from replicax.results.plots import plot_posterior

        return plot_posterior(self, None if out is None else figure_folder(out), var_names)

    def report(self: Any, out: str | Path | None = None, truth: Any = None) -> Path:
        """Write the run as one HTML page and return its path (needs the extra `report`).

        Args:
            out: an HTML file, or a folder; by default `report.html` in the run folder.
            truth: what is known about the target, for comparison: exact draws in the tree of the
                parameters, with a leading axis; a dict from names of components to draws or
                numbers; or "modes25", the default for the demo.
        """
        from replicax.results.report.build import build_page, check_out, write_page

        check_out(self, out)
        return write_page(self, out, build_page(self, truth))

    def predictive(self: Any, *args: Any, seed: int = 0, **kwargs: Any) -> dict[str, np.ndarray]:
        """Draw from the predictive distribution given each draw, by site  (chain, draw, ...).

        For `rx.interop.from_numpyro`: `args` and `kwargs` are those of the model, by default the
        original ones without the observed values.
        """
        predict = getattr(self._target, "predict", None)
        if predict is None:
            raise ValueError(
                "predictive needs a model that can draw its data: a run of "
                "rx.interop.from_numpyro. To load such a run, write rx.load(folder, target)."
            )
        return predict(self.draws, seed, args, kwargs)

    def log_likelihood(self: Any) -> np.ndarray:
        """Log likelihood of every row under every draw  (chain, draw, row), for `rx.bayesian`
        posteriors, directly after the run or from `rx.load(folder, target)`."""
        if not hasattr(self._target, "pointwise"):
            raise ValueError(
                "log_likelihood needs an rx.bayesian posterior, which has rows. To load such a "
                "run, write rx.load(folder, target)."
            )
        tree = plain.rebuild(self.metadata.params, self._leaves(0), self._like)
        return self._target.pointwise(tree)

    def to_arviz(self: Any, log_likelihood: bool = True) -> Any:
        """Draws, statistics of the sampler, log likelihoods and data as ArviZ data (needs the extra
        `arviz`)."""
        from replicax.interop.arviz import to_arviz

        return to_arviz(self, log_likelihood)

    def save(self: Any, folder: str | Path) -> Path:
        """Write everything into a new folder that `rx.load` opens."""
        path = check_folder("folder", folder)
        save_copy(self._records, path)
        return path
