"""`Posterior`: the result of a run, in memory or read lazily from its folder."""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np

from replicax.algorithm.labels import Ordering, ordered
from replicax.errors import RunProblem, check_path, choose, is_whole, show
from replicax.run import processes, trees
from replicax.run.carry import PAIR_COUNTS, num_attempts
from replicax.run.options import Session
from replicax.run.records import Records, Result
from replicax.run.storage.folder import save_copy
from replicax.run.storage.metadata import SWEEPS, Metadata, to_plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from replicax.results.evidence import Estimates, Evidence
    from replicax.results.report import Section
    from replicax.results.summary import Summary

_MAX_COMPONENTS = 1000  # components with R-hat and effective size
_SWEEPS = ("minima", "learning", "kept")  # what sweeps over all rows are for


class Posterior:
    """Draws of the coldest rung and the history of the run; every array has a chain axis first."""

    def __init__(self, records: Records, like: Any = None, target: Any = None) -> None:
        self._records, self._like, self._target = records, like, target

    def __repr__(self) -> str:
        trips = ", ".join(str(n) for n in self.round_trips)
        return (
            f"Posterior({self.num_draws} draws x {self.num_chains} chains after {self.num_steps} "
            f"steps of {self.num_replicas} replicas; round trips: {trips}; {self.result.code})"
        )

    @property
    def run_dir(self) -> Path | None:
        return self._records.folder

    @property
    def options(self) -> dict[str, Any]:
        """The options of the run as plain data, and what they came to, in steps."""
        metadata = self.metadata
        return {**to_plain(metadata.run), **to_plain(metadata.method), **asdict(metadata.resolved)}

    @property
    def metadata(self) -> Metadata:
        """The metadata of the run, as stored in its folder."""
        return self._records.metadata

    @property
    def result(self) -> Result:
        """How the run ended: a code and a sentence."""
        ending = self.metadata.result
        if ending is None:
            return Result("running", "The run has not ended (or was killed).")
        return Result(ending.code, ending.sentence)

    @property
    def num_chains(self) -> int:
        return self.metadata.resolved.num_chains

    @property
    def num_replicas(self) -> int:
        return self.metadata.resolved.num_replicas

    @property
    def energy_scale(self) -> float:
        """Energy of the records per energy in which learning rates are given."""
        return 1.0

    @property
    def temperature_scale(self) -> float:
        """Temperature that is given per temperature of the records."""
        return 1.0

    @property
    def num_steps(self) -> int:
        """Steps done."""
        return int(self._final("step"))

    @property
    def num_draws(self) -> int:
        return self._records.length("draws")

    @property
    def window(self) -> int:
        return self.metadata.resolved.window

    @property
    def num_windows(self) -> np.ndarray:
        """Number of counted windows in which each pair was active  (chain, pair)."""
        return self._final("windows")

    def _final(self, name: str) -> np.ndarray:
        values = self._records.final
        if name not in values:
            raise ValueError(f"The run in {self.run_dir} is damaged: its values lack {name}.")
        return values[name]

    def _draws(self, name: str, rung: int) -> np.ndarray:
        """(draw, chain, rung, ...) -> (chain, draw, ...)."""
        rungs = self.metadata.resolved.draw_rungs
        if not is_whole(rung) or rung not in rungs:
            raise ValueError(
                f"Draws of rung {show(rung)} were not kept, only of {list(rungs)}; sample with "
                f'draw_rungs=(0, {show(rung)}) or "all".'
            )
        if name != "energy" and not self.metadata.resolved.keep_draws:
            raise ValueError(
                "The parameters of draws were not kept: sample with keep_draws=True, or train with "
                "keep_networks=True."
            )
        if self.num_draws == 0:
            spec = self.metadata.params
            shape = dict(zip(spec.names, spec.shapes)).get(name.removeprefix("params."), ())
            return np.zeros((self.num_chains, 0, *shape))
        return np.moveaxis(self._records.read("draws", name)[:, :, rungs.index(rung)], 0, 1)

    def draws_at(self, rung: int) -> Any:
        """Draws of another rung that was kept with `draw_rungs`."""
        return self._values(self._leaves(rung), 2)

    def _leaves(self, rung: int) -> list[np.ndarray]:
        return [self._draws(f"params.{name}", rung) for name in self.metadata.params.names]

    @property
    def _constrains(self) -> bool:
        return getattr(self._target, "constrain", None) is not None

    def _values(self, leaves: list[np.ndarray], num_axes: int) -> Any:
        """Return sampled numbers as the user's values, constrained if the target defines how."""
        tree = trees.rebuild(self.metadata.params, leaves, self._like)
        if not self._constrains:
            return tree
        constrain = self._target.constrain
        for _ in range(num_axes):
            constrain = jax.vmap(constrain)
        return jax.tree.map(np.asarray, jax.jit(constrain)(tree))

    def energies_at(self, rung: int) -> np.ndarray:
        """Energies of draws of another rung that was kept with `draw_rungs`."""
        return self._draws("energy", rung)

    @property
    def draws(self) -> Any:
        """Draws of the coldest rung, in the tree of the parameters  (chain, draw, ...)."""
        return self.draws_at(0)

    @property
    def energies(self) -> np.ndarray:
        """Energy of each drawn replica, as evaluated in its step  (chain, draw)."""
        return self.energies_at(0)

    @property
    def rung_of(self) -> np.ndarray:
        """The index process: the rung of every replica after every step  (chain, step, replica)."""
        return np.moveaxis(self._records.read("steps", "rung_of"), 0, 1)

    @property
    def draw_steps(self) -> np.ndarray:
        """The step of each draw, if draws are a fixed number of steps apart  (draw,)."""
        resolved = self.metadata.resolved
        steps = np.arange(resolved.burn_in, self.num_steps, resolved.thin)
        return np.repeat(steps, resolved.draws_per_step)

    @property
    def round_trips(self) -> np.ndarray:
        """Round trips of all replicas that ended in the counted steps  (chain,)."""
        return self._final("round_trips")

    @property
    def counted_steps(self) -> int:
        """Steps over which rates and round trips are counted: after burn-in, and, with an automatic
        buffer, after the first steps, which measure the unit of energy without exchange."""
        return max(self.num_steps - self.metadata.resolved.counted_from, 1)

    @property
    def counted_attempts(self) -> int:
        """Counted steps at which swaps were attempted."""
        resolved = self.metadata.resolved
        attempts = num_attempts(resolved.counted_from, self.num_steps, resolved.swap_every)
        return max(attempts, 1)

    @property
    def verdict_rate(self) -> np.ndarray:
        """How often the rule accepted, per counted attempt  (chain, pair)."""
        return self._final("verdicts") / self.counted_attempts

    @property
    def window_swap_rate(self) -> np.ndarray:
        """The fraction of its counted windows in which a pair swapped  (chain, pair)."""
        return self._final("window_swaps") / np.maximum(self.num_windows, 1)

    @property
    def restart_rate(self) -> np.ndarray:
        """The fraction of all steps in which the replica on a rung was restarted  (chain, rung)."""
        return self._final("restarts") / max(self.num_steps, 1)

    @property
    def acceptance(self) -> np.ndarray | None:
        """How often an adjusted kernel accepted its moves; None for others  (chain, rung)."""
        if not self.metadata.resolved.adjusted:
            return None
        return self._final("acceptance") / self.counted_steps

    @property
    def jumps(self) -> dict[str, Any] | None:
        """How the coldest replica jumped since the mixture is frozen: `proposals` after each step,
        `accepted`, a rate by chain, `longest`, the most that were refused in a row by chain, the
        `components` of the mixture, the steps of the burn-in that were `spared` because nothing was
        left to learn, and the `evaluations` of the energy, those of the whole run by what spent
        them; None for runs that learn none."""
        final = self._records.final
        if "jumps.proposals" not in final:
            return None
        proposals = np.maximum(final["jumps.proposals"], 1)
        components = int(final["mixture.count"])
        return {
            "proposals": self.metadata.method.jumps if components else 0,
            "accepted": final["jumps.accepted"] / proposals,
            "longest": final["jumps.longest"],
            "components": components,
            "spared": int(final.get("learning.spared", 0)),  # sweeps have no burn-in of steps
            "evaluations": self._evaluations(),
        }

    @property
    def sweeps(self) -> dict[str, Any] | None:
        """What sweeps over all rows took: how many of each kind, evaluations of a row and seconds,
        also those of the finder on some of the `rows`; the harmonic `acceptance` in those that
        learned; and the `excess` of the heaviest draw of the finder over all proposals of a sweep,
        as a logarithm; with `exact=False` from how many rows energies are `estimated_from` (0:
        all), their error by these rows (`noise`) in each sweep, and by all rows (`error`). None
        for runs without."""
        final = self._records.final
        if self.metadata.resolved.kernel != SWEEPS:
            return None
        rows, evaluations, seconds = (float(x) for x in final["sweeps.spent.finder"])
        spent = {
            name: dict(zip(_SWEEPS, final[f"sweeps.spent.{name}"].tolist()))
            for name in ("sweeps", "evaluations", "seconds")
        }
        num_rows = self.metadata.batches.num_rows or 0
        counts = {kind: int(count) for kind, count in spent["sweeps"].items()}
        swept = sum(spent["seconds"].values())
        of_rows = {kind: num_rows * x for kind, x in spent["evaluations"].items()}
        return {
            "rows": num_rows,
            "finder_rows": int(rows),
            **counts,
            "evaluations": {"finder": evaluations * rows, **of_rows},
            "seconds": {"finder": seconds, **spent["seconds"]},
            "rows_per_second": num_rows * sum(counts.values()) / swept if swept else 0.0,
            "acceptance": final["sweeps.acceptance"].tolist(),
            "excess": final["sweeps.excess"].tolist(),
            "estimated_from": int(final["sweeps.estimated_from"]),
            "noise": final["sweeps.noise"].tolist(),
            "error": float(final["sweeps.error"]),
            "unsettled": int(final["sweeps.unsettled"]),
        }

    def _evaluations(self) -> dict[str, int]:
        """Return how many energies each part of a run with jumps evaluated, with their gradients in
        search and ladder."""
        final = self._records.final
        if self.sweeps is not None:  # of all rows
            counts = final["sweeps.spent.evaluations"]
            return {name: int(n) for name, n in zip(("minima", "learning", "jumps"), counts)}
        search, renewals, before = (int(count) for count in final["learning.evaluations"])
        jumps = before + int(np.sum(final["jumps.proposals"], dtype=float))
        taken = self.num_steps - int(final["learning.spared"])
        ladder = int(final["learning.gradients_per_step"]) * taken
        return {"search": search, "renewals": renewals, "ladder": ladder, "jumps": jumps}

    @property
    def redraw_rate(self) -> np.ndarray | None:
        """How often draws from the prior were accepted; None for runs without  (chain, rung)."""
        count = self.metadata.method.redraws
        return self._final("redrawn") / (self.counted_steps * count) if count else None

    @property
    def rung_energies(self) -> np.ndarray:
        """Energies of all rungs before the swap, at each draw, for `rx.bayesian` posteriors
        (chain, draw, rung)."""
        return np.moveaxis(self._records.read("draws", "rung_energy"), 0, 1)

    @property
    def jump_weights(self) -> np.ndarray | None:
        """Minus energy and minus log density of the mixture, at each draw and at one proposal of
        its step; None for runs without a mixture  (chain, draw, 2)."""
        jumps = self.jumps
        if jumps is None or not jumps["components"] or not self.num_draws:
            return None
        return np.moveaxis(self._records.read("draws", "jump_weight"), 0, 1)

    @property
    def learning_rates(self) -> np.ndarray:
        """At the end  (chain, rung)."""
        return self._final("learning_rates")

    @property
    def temperatures(self) -> np.ndarray:
        """At the end  (chain, rung)."""
        return self._final("temperatures")

    @property
    def buffer(self) -> np.ndarray:
        """At the end, in the unit of the energy  (chain,)."""
        return self._final("buffer")

    @property
    def window_correction(self) -> np.ndarray:
        """lambda_W of the rule; 0 for rules without one  (chain,)."""
        return self._final("window_correction")

    @property
    def history(self) -> dict[str, np.ndarray]:
        """Histories by name, each (chain, point, ...), and the `step` of each point.

        `verdicts`, `windows` and `window_swaps` are counts so far: their differences give rates.
        """
        records = self._records
        arrays = {
            name: np.moveaxis(records.read("history", name), 0, 1)
            for name in records.names("history")
        }
        if not arrays:
            return {"step": np.zeros(0, int)}
        counts = arrays.pop("pairs")
        arrays |= {name: counts[:, :, row] for row, name in enumerate(PAIR_COUNTS)}
        points = counts.shape[1]
        return {"step": (np.arange(points) + 1) * self.metadata.resolved.history_every, **arrays}

    def components(self, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
        """The first scalar components of the parameters by name, each (chain, draw).

        `names`: restrict to these arrays of the parameters.
        """
        if self.num_draws == 0 or not self.metadata.resolved.keep_draws:
            return {}
        known = self.metadata.params.names
        if self._constrains:
            named = self._named(self._leaves(0))
        else:  # one in memory at a time
            asked = known if names is None else [name for name in known if name in names]
            named = ((name, self._draws(f"params.{name}", 0)) for name in asked)
        return _components(pair for pair in named if names is None or pair[0] in names)

    def judged(self) -> dict[str, np.ndarray]:
        """The components by which a run is judged, each (chain, draw): labels that can be exchanged
        are in order. In random order chains would agree that have not found the same."""
        if self._ordering is None or not self.components():
            return self.components()
        return _components(self._named(self._in_order(self._leaves(0))))

    def judged_before_jumps(self) -> dict[str, np.ndarray]:
        """The same of the coldest replica after each step of the ladder, before it jumps, each
        (chain, step); none for runs without jumps."""
        if not self._records.length("before_jumps"):
            return {}
        flat = np.moveaxis(self._records.read("before_jumps", "point"), 0, 1)
        return _components(self._named(self._in_order(self._split(flat))))

    def _split(self, flat: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of flattened points (..., d)."""
        spec = self.metadata.params
        parts = np.split(flat, np.cumsum(spec.sizes)[:-1], axis=-1)
        return [part.reshape(*flat.shape[:-1], *shape) for part, shape in zip(parts, spec.shapes)]

    def shown(self, flat: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Return flattened points (n, d) of sampled numbers as the user knows them: the names of
        their components, and these."""
        components = _components(self._named(self._split(flat[None])))
        return list(components), np.concatenate(list(components.values())).T

    @property
    def _ordering(self) -> Ordering | None:
        """The order of labels that can be exchanged, None where there are none."""
        final = self._records.final
        if "labels.places" not in final:
            return None
        return Ordering(final["labels.places"], final["labels.direction"])

    def _in_order(self, leaves: list[np.ndarray]) -> list[np.ndarray]:
        """Return arrays (chain, draw, ...) with their exchangeable labels in order."""
        if self._ordering is None:
            return leaves
        lead = leaves[0].shape[:2]
        flat = np.concatenate([leaf.reshape(lead[0] * lead[1], -1) for leaf in leaves], axis=1)
        return self._split(ordered(self._ordering, flat)[0].reshape(*lead, -1))

    def _named(self, leaves: list[np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Yield arrays (chain, draw, ...) of sampled numbers by name, as the user knows them."""
        if self._constrains:
            tree = self._values(leaves, 2)
            yield from zip(trees.leaf_names(tree), jax.tree.leaves(tree), strict=True)
        else:
            yield from zip(self.metadata.params.names, leaves, strict=True)

    @property
    def best(self) -> tuple[Any, float]:
        """The lowest-energy point of any chain, and its recorded energy.

        Over all replicas and steps with the schedule "exactly_one", else over the draws.
        """
        points, energies = self.best_by_chain
        chain = int(np.argmin(energies))
        return jax.tree.map(lambda leaf: leaf[chain], points), float(energies[chain])

    @property
    def best_by_chain(self) -> tuple[Any, np.ndarray]:
        """The lowest-energy point of each chain, and its recorded energy  (chain, ...).

        With noisy energies, the lowest one is partly luck: evaluate the point again.
        """
        names, is_tracked = self.metadata.params.names, self.metadata.resolved.track_best
        if self.metadata.method.energy_at == "before" and not is_tracked:
            raise ValueError(
                'With energy_at="before" the energy of a draw is that of the point before its '
                'move: write energy_at="moved", or schedule="exactly_one", which tracks the best '
                "point, in the method."
            )
        if is_tracked:
            leaves = [self._final(f"best.{i:06d}") for i in range(len(names))]
            return self._values(leaves, 1), self._final("best_energy")
        energies = self.energies
        if energies.size == 0:
            raise ValueError("No draws were kept, so there is no best one.")
        energies = np.where(np.isfinite(energies), energies, np.inf)
        chains, draw = np.arange(self.num_chains), np.argmin(energies, axis=1)
        points = [self._draws(f"params.{name}", 0)[chains, draw] for name in names]
        return self._values(points, 1), energies[chains, draw]

    @property
    def barrier(self) -> np.ndarray:
        """Sum of the rejection rates of all pairs, for rules with temperatures  (chain,).

        Twice the barrier plus one is a good number of rungs.
        """
        return np.sum(1 - self.verdict_rate, axis=1)

    @property
    def replicas_advised(self) -> int | None:
        """The number of replicas at which pairs of this ladder would reject half of their attempts,
        by its barrier; None for rules without temperatures."""
        if self.metadata.resolved.rule == "deterministic" or self.num_replicas < 2:
            return None
        return int(np.ceil(2 * self.barrier.max())) + 1

    def log_evidence(self, by: str | None = None) -> "Evidence":
        """Log of the integral of prior x likelihood, with its standard error.

        For `rx.bayesian` posteriors without mini-batches, with the prior on the hottest rung or
        with jumps.

        Args:
            by: "ladder", from the energies of all rungs; "bridge", from the draws and the proposals
                of jumps. Unless given, the more precise one of those that the run has; where they
                disagree, which is a warning, that of the ladder with an error that reaches to the
                other.
        """
        from replicax.results.evidence import refusal, reported

        found = self._evidences
        if by is not None:
            choose("by", by, ("ladder", "bridge"))
        if not found or by not in (None, *found):
            needs = "A bridge needs jumps: write method=rx.posterior(jumps=64)."
            raise ValueError(needs if found and by == "bridge" else refusal(self))
        return reported(found)[1] if by is None else found[by].combined()

    @cached_property
    def _evidences(self) -> "dict[str, Estimates]":
        """Log evidences by chain, by how they were found; computed once."""
        from replicax.results.evidence import of_run

        return of_run(self)

    def replica_rhat(self) -> dict[str, float]:
        """R-hat over replicas, each followed through the ladder, of every component by name.

        Near 1 if all replicas bring the same draws to the coldest rung, and above 1.05 if each
        stays in its own mode, which R-hat over chains does not detect. NaN if replicas reached the
        coldest rung too rarely. It needs different starts: replicas that all start in one mode
        agree.
        """
        from replicax.results.diagnostics import replica_rhat

        return replica_rhat(self, self.components())

    def summary(self) -> "Summary":
        """Swap rates, round trips, R-hat and effective sizes: a dict for JSON, which prints as
        tables."""
        from replicax.results.summary import summarise

        return summarise(self)

    def plot(
        self, out: str | Path | None = None, var_names: Sequence[str] | None = None
    ) -> "dict[str, Figure]":
        """Figures of the run; written to the folder `out` if given, and returned by name.

        `var_names` are the parameters whose draws are shown, such as ["mu", "theta[3]"]; by default
        the first few.
        """
        from replicax.results.figure_style import figure_folder
        from replicax.results.plots import plot_posterior

        return plot_posterior(self, None if out is None else figure_folder(out), var_names)

    def report(self, out: str | Path | None = None, every: float | None = None) -> Path:
        """Write the run as one HTML page and return its path.

        `out` is an HTML file, or a folder; by default `report.html` in the run folder. The page of
        a run that goes on is loaded again `every` so many seconds by a browser that shows it.
        """
        from replicax.results.report import check_out, write_report

        check_out(self, out)
        return write_report(self, self._sections(), out, every)

    def _sections(self) -> "list[Section]":
        """Return the content of the report."""
        from replicax.results.report import sections_of

        return sections_of(self)

    def log_likelihood(self) -> np.ndarray:
        """Log likelihood of every row under every draw  (chain, draw, row), for `rx.bayesian`
        posteriors, directly after the run or from `rx.load(folder, target)`."""
        if not hasattr(self._target, "pointwise"):
            raise ValueError(
                "log_likelihood needs an rx.bayesian posterior, which has rows. To load such a "
                "run, write rx.load(folder, target)."
            )
        tree = trees.rebuild(self.metadata.params, self._leaves(0), self._like)
        return self._target.pointwise(tree)

    def to_arviz(self, log_likelihood: bool = True) -> Any:
        """Draws, statistics of the sampler, log likelihoods and data as ArviZ data (needs the extra
        `arviz`)."""
        from replicax.interop.arviz import to_arviz

        return to_arviz(self, log_likelihood)

    def extend(
        self,
        num_steps: int | None = None,
        *,
        retune: bool = False,
        run_dir: str | Path | None = None,
        progress: bool | None = None,
        callback: Callable | Sequence[Callable] | None = None,
    ) -> "Posterior":
        """Return the run with more draws under the same tuning, bit for bit as if it had been
        longer; a run in a folder grows there.

        `retune=True` begins anew from where the replicas are, where the tuning was the problem:
        with a new burn-in, a third of the steps, and without the draws so far. It needs a `run_dir`
        of its own where the run has one.

        Args:
            num_steps: more steps; as many as were kept so far, with `retune` twice those of the
                run.
            retune: learn ladder, step sizes and mixture anew.
            run_dir, progress, callback: as of `rx.sample`.
        """
        from replicax.results.done import extend

        session = Session(run_dir=run_dir, progress=progress, callback=callback)
        return extend(self, num_steps, retune, session).warned()

    def shortcomings(self) -> list[str]:
        """What the run is short of to be done, in words: round trips, R-hat, effective draws, the
        error of the log evidence, or else warnings."""
        from replicax.results.done import shortcomings

        return [one.words for one in shortcomings(self)]

    def save(self, folder: str | Path) -> Path:
        """Write everything into a new folder that `rx.load` opens."""
        path = check_path("folder", folder)
        save_copy(self._records, path)
        return path

    def problems(self) -> list[str]:
        """Reasons not to trust the run, as sentences."""
        from replicax.results.problems import find_problems

        return find_problems(self)

    @cached_property
    def _mixing_problems(self) -> list[str | None]:
        """What `diagnostics.find_mixing_problems` says, computed once."""
        from replicax.results.diagnostics import find_mixing_problems

        return find_mixing_problems(self)

    @cached_property
    def _gradient_problem(self) -> str | None:
        """A problem that is found by evaluating the target, if the posterior has it; evaluated
        once."""
        from replicax.results.gradient_problems import gradient_problem

        return gradient_problem(self)

    def warn(self) -> None:
        """Issue a warning for each of the `problems`."""
        from replicax.results.problems import NOT_DONE

        for sentence in self.problems() if processes.is_first() else ():
            if not sentence.startswith(NOT_DONE):  # which was said when the run ended
                warnings.warn(sentence, RunProblem, stacklevel=4)

    def warned(self) -> Self:
        """Issue the warnings, and return the posterior."""
        self.warn()
        return self


def _components(named: Iterable[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the first scalar components of arrays (chain, draw, ...) by name."""
    components: dict[str, np.ndarray] = {}
    for name, values in named:
        flat = values.reshape(*values.shape[:2], -1)
        for i, component in enumerate(trees.component_names(name, values.shape[2:])):
            if len(components) == _MAX_COMPONENTS:
                return components
            components[component] = flat[:, :, i]
    return components
