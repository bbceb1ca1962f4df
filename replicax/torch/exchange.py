"""`Exchange`: replica exchange in a PyTorch training loop.

The JAX engine decides swaps and adapts ladder and buffer (`decisions.py`); models and optimizers
stay in place, and the rates with which optimizers step move between them (`stepping.py`).
"""

import json
import warnings
from array import array
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from replicax.algorithm.ladder import Ladder
from replicax.algorithm.schedule import Sequential
from replicax.algorithm.state import Settings
from replicax.errors import RunProblem, at_least, choose, show
from replicax.interop.extras import import_extra
from replicax.run import parts
from replicax.run.carry import PAIR_COUNTS, completed_trips
from replicax.run.methods import Method
from replicax.run.options import SEEDS, whole
from replicax.run.parts import Plan
from replicax.run.resolve import with_usual
from replicax.run.storage.metadata import to_plain
from replicax.torch import trips
from replicax.torch.decisions import Decisions, prepare_jax
from replicax.torch.losses import check_finite, to_host
from replicax.torch.optimizers import check_langevin, check_optimizers, reset_memory
from replicax.torch.ranks import Ranks
from replicax.torch.stepping import Noise, Stepping, common_course

FORMAT = 2  # of `state_dict`
_STEPPED_BY = 50  # steps in which every optimizer has stepped, also with AMP
_LONGEST = 2**31 - 1  # steps; a loop of the user's own does not tell how many it will take


class Exchange:
    """Replica exchange between PyTorch models that are trained in one loop, each with its own
    optimizer.

    Call `step(losses)` after the optimizers have stepped. Two models that swap exchange rungs, and
    with them the learning rates with which their optimizers step; nothing else changes. Between
    steps the `param_groups` have the rates of the user and of LR schedulers, and their course
    multiplies the whole ladder.

    Args:
        optimizers: one per model; under `torchrun` those of this rank.
        learning_rate: (cold, hot), a geometric ladder that adapts; or one value per rung.
        target_swap_rate: how often the rule should accept, per step.
        window: steps per window, by default that of Theorem 1.
        schedule: "deo_star", "deo", "seo", "exactly_one", "no_gate", "none", or one of
            `rx.schedule`.
        gain, buffer_gain: step sizes with which ladder and buffer adapt.
        buffer: the initial buffer, in the unit of the losses, or "auto".
        adapt: False, or the number of steps after which ladder and buffer freeze.
        temperature: temperature of Langevin noise on the coldest rung, in the unit of the losses: 1
            / rows for the posterior of a mean loss; or one per rung. Needs `torch.optim.SGD`.
        on_swap: "keep": the state of an optimizer stays with its model; "reset": a swap sets it to
            zero.
        on_nonfinite: "stop": a non-finite loss is an error; "ignore": its model does not swap.
        seed: seed of Langevin noise and of random schedules.
        history_every: steps between points of the history.
        process_group: the `torch.distributed` group whose ranks share the replicas, by default all
            ranks. False: this process has all replicas.
    """

    def __init__(
        self,
        optimizers: Any,
        learning_rate: Any,
        *,
        target_swap_rate: float = 0.005,
        window: int | None = None,
        schedule: Any = "deo_star",
        gain: Any = None,
        buffer: float | str = 0.1,
        buffer_gain: Any = None,
        adapt: bool | int = True,
        temperature: Any = 0.0,
        on_swap: str = "keep",
        on_nonfinite: str = "stop",
        seed: int = 0,
        history_every: int = 100,
        process_group: Any = None,
    ) -> None:
        of_method = {entry.name for entry in fields(Method)}
        choices = {name: value for name, value in locals().items() if name in of_method}
        self._torch = torch = import_extra("torch", "torch", "rx.torch.Exchange")
        prepare_jax()
        self._ranks = Ranks(torch, process_group)
        self._optimizers, told, error = [], "", None
        self._steppings: list[Stepping] = []
        others = {"seed": seed, "on_nonfinite": on_nonfinite, "history_every": history_every}
        try:
            self._optimizers = check_optimizers(torch, optimizers)
            at_least("history_every", history_every, 1)
            choose("on_nonfinite", on_nonfinite, ("stop", "ignore"))
            whole(*SEEDS)("seed", seed)
            plain = to_plain(build_method(**choices))
            told = json.dumps({name: plain[name] for name in choices} | others)
            if np.any(np.asarray(temperature, float) > 0):
                check_langevin(torch, self._optimizers)
            for number, optimizer in enumerate(self._optimizers):
                self._steppings.append(Stepping(torch, optimizer, f"optimizers[{number}]"))
        except ValueError as problem:  # the other ranks must know about it
            error = problem
        self._first_rates = self._ranks.agree([x.first for x in self._steppings], told, error)
        self._settings, ladder = build_settings(build_method(**choices), self.num_replicas)
        self._plain = json.dumps(json.loads(told) | {"num_replicas": self.num_replicas})
        self._history_every, self._ignores = history_every, on_nonfinite == "ignore"
        start = 0.0 if isinstance(buffer, str) else float(buffer)
        self._decisions = Decisions(self._settings, ladder, start, seed)
        self._paths = array("h")  # the rungs of all replicas, step after step
        self._points: list[dict[str, Any]] = []  # of the history
        self.num_steps = 0  # done
        self._has_told = False  # that there was no round trip
        rate = self._settings.tuning.target_swap_rate
        self._plan = trips.Plan(self.num_replicas, rate, self.window, adapt is True)
        self._patience = self._plan.patience
        self._set_rungs()
        for replica, stepping in enumerate(self._steppings, self._ranks.first):
            noise = Noise(torch, self, seed, replica) if self._settings.langevin else None
            stepping.attach(noise)

    def step(self, losses: Any) -> None:
        """Decide which models swap rungs, given the losses of this step, and set learning rates.

        `losses` are numbers or scalar tensors, one per optimizer of this process; or one tensor of
        them. On an error, nothing changes.
        """
        here, course, error = None, 0.0, None
        try:
            here = to_host(self._torch, losses, len(self._optimizers))
            if not self._ignores:
                check_finite(here)
            course = self._course_here()
        except ValueError as problem:  # the other ranks must know about it
            error = problem
        gathered = self._ranks.gather(here, self.num_steps, course, error)
        common_course(gathered.courses)
        before = self._rung_of
        self._decisions.advance(gathered.losses)
        self.num_steps += 1
        self._set_rungs()
        self._paths.extend(self._rung_of)
        if self.num_steps % self._history_every == 0:
            self._record()
        if self.num_steps == _STEPPED_BY:
            self._tell_who_stands()
        if self.num_steps == self._patience:
            self._tell_of_trips()
        if self._settings.on_swap == "reset":
            for number, optimizer in enumerate(self._optimizers, self._ranks.first):
                if before[number] != self._rung_of[number]:
                    reset_memory(self._torch, optimizer)

    def _tell_who_stands(self) -> None:
        """Warn if an optimizer has not stepped at all."""
        for number, stepping in enumerate(self._steppings):
            if not stepping.has_stepped:
                warnings.warn(
                    f"optimizers[{number}] has not stepped in {_STEPPED_BY} steps of the exchange. "
                    "Rates of rungs are set while optimizers step: call step() of those that the "
                    "exchange was given.",
                    RunProblem,
                    stacklevel=3,
                )
                return

    def _course_here(self) -> float:
        return common_course([x.course() for x in self._steppings], self._ranks.first)

    def _set_rungs(self) -> None:
        """Read the rungs and the ladder, and set those of the models of this process."""
        self._rung_of, ladder = self._decisions.rung_of(), self._decisions.learning_rates()
        for stepping, rung in zip(self._steppings, self._rung_of[self._ranks.first :]):
            stepping.set_rung(rung, ladder[rung])

    def _record(self) -> None:
        read = self._decisions.read
        point = {
            "step": self.num_steps,
            "learning_rate": self.learning_rates,
            "buffer": self.buffer,
            "energy": read(".counters.energy"),
            **dict(zip(PAIR_COUNTS, read(".counters.pairs"))),
        }
        self._points.append(point)

    @property
    def num_replicas(self) -> int:
        """Number of models on all ranks."""
        return int(self._ranks.counts.sum())

    @property
    def rung_of(self) -> list[int]:
        """The rung of every model, 0 the coldest."""
        return list(self._rung_of)

    @property
    def cold(self) -> int:
        """The index of the model on the cold rung; under `torchrun` counted over all ranks."""
        return self._rung_of.index(0)

    @property
    def cold_here(self) -> int | None:
        """The index of that model among the optimizers of this rank, None if it is on another
        rank."""
        place = self.cold - self._ranks.first
        return place if 0 <= place < len(self._optimizers) else None

    @property
    def learning_rates(self) -> np.ndarray:
        """The ladder  (rung,)."""
        return self._decisions.read(".state.ladder.learning_rate")

    @property
    def buffer(self) -> float:
        """The buffer of the rule, in the unit of the losses."""
        return float(self._decisions.read(".state.buffer"))

    @property
    def window(self) -> int:
        """Steps per window, in which a pair swaps at most once."""
        return int(self._settings.schedule.window)

    @property
    def factor(self) -> float:
        """The factor by which LR schedulers have multiplied all learning rates so far."""
        return self._course_here()

    @property
    def index_paths(self) -> np.ndarray:
        """The rung of every model after every step  (step, replica)."""
        return np.array(self._paths, np.int16).reshape(-1, self.num_replicas)

    @property
    def history(self) -> dict[str, np.ndarray]:
        """Histories by name, each (point, ...), every `history_every` steps, as in `rx.Posterior`:
        learning rates and losses by rung, the buffer, and counts so far by pair."""
        points = self._points
        pairs, rungs = (self.num_replicas - 1,), (self.num_replicas,)
        shapes = {"step": (), "learning_rate": rungs, "buffer": (), "energy": rungs}
        shapes |= dict.fromkeys(PAIR_COUNTS, pairs)
        return {
            name: np.array([point[name] for point in points], float).reshape(len(points), *shape)
            for name, shape in shapes.items()
        }

    def summary(self) -> dict[str, Any]:
        """Return rates, round trips and the ladder as plain data."""
        read, steps = self._decisions.read, self.num_steps
        verdicts, windows, swaps = read(".counters.pairs")
        counted = max(steps - self._settings.tuning.measure_steps, 1)
        made = int(completed_trips(read(".counters.turns")).sum())
        return {
            "num_steps": steps,
            "num_replicas": self.num_replicas,
            "schedule": self._settings.schedule.name,
            "window": self.window,
            "target_swap_rate": self._settings.tuning.target_swap_rate,
            "verdict_rate": (verdicts / counted).tolist(),
            "window_swap_rate": (swaps / np.maximum(windows, 1)).tolist(),
            "round_trips": made,
            "round_trips_per_1000_steps": 1000 * made / counted,
            "learning_rates": self.learning_rates.tolist(),
            "factor": self.factor,
            "buffer": self.buffer,
            "cold": self.cold,
            "rung_of": self.rung_of,
            "problems": self._tell_of_trips(),
        }

    def _tell_of_trips(self) -> list[str]:
        """Warn once if no replica has made a round trip, and return this in a list."""
        made = completed_trips(self._decisions.read(".counters.turns")).sum()
        if made or not self.num_steps or self._settings.schedule.name == "none":
            return []
        accepted = float(self._decisions.read(".counters.pairs")[0].min()) / self.num_steps
        said = trips.without_round_trip(self._plan, self.num_steps, accepted)
        if not self._has_told:
            warnings.warn(said, RunProblem, stacklevel=3)
        self._has_told = True
        return [said]

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the exchange needs to resume exactly; the same on all ranks."""
        tensor = self._torch.tensor
        return {
            "format": FORMAT,
            "options": self._plain,
            "first_rates": tensor(self._first_rates, dtype=self._torch.float64),
            "arrays": {name: tensor(value) for name, value in self._decisions.arrays().items()},
            "paths": tensor(self.index_paths),
            "history": {name: tensor(value) for name, value in self.history.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a `state_dict` of an exchange with the same arguments.

        Load the optimizers and schedulers too: their state is not included.
        """
        saved = read_state(state, self._plain, self.history, self.num_replicas)
        self._decisions.load(saved.arrays)
        self._first_rates = saved.first_rates
        for stepping, first in zip(self._steppings, self._first_rates[self._ranks.first :]):
            stepping.first = first
        self._paths = array("h", saved.paths.astype(np.int16).tobytes())
        self._points = [dict(zip(saved.history, row)) for row in zip(*saved.history.values())]
        self.num_steps = int(self._decisions.read(".state.step"))
        self._set_rungs()

    def __getstate__(self) -> Any:
        """Refuse to be copied or pickled."""
        raise TypeError(
            "An Exchange belongs to its optimizers and cannot be copied or pickled: save "
            "state_dict(), and load it into an Exchange of the other optimizers."
        )


def build_method(learning_rate: Any, schedule: Any, **choices: Any) -> Method:
    """Return the method of an exchange, with the usual values of networks where it is open."""
    if learning_rate is None or isinstance(learning_rate, str):
        raise ValueError(
            f"learning_rate is {show(learning_rate)}; give (cold, hot), or one for each rung."
        )
    method = Method("exchange", learning_rate=learning_rate, schedule=schedule, **choices)
    return with_usual(method, of_networks=True)


def build_settings(method: Method, num_replicas: int) -> tuple[Settings, Ladder]:
    """Return the parts of the algorithm and the ladder; raise if they need more than the losses of
    a step."""
    plan = Plan(_LONGEST, num_replicas, burn_in=0, thin=1, history_every=1, tuned_until=None)
    schedule = parts.schedule(method, plan)
    schedule.check(num_replicas)
    rule = parts.rule(method, plan, schedule)
    if rule.uses_temperature:
        raise ValueError(
            f'rule is "{rule.name}", which needs energies on mini-batches other than those of the '
            "training step: leave it out, or use rx.train."
        )
    if isinstance(schedule, Sequential):
        raise ValueError(
            f'schedule is "{schedule.name}", which tries one pair after another, each on its own '
            'mini-batch: write "deo_star", "deo", "seo", "exactly_one" or "no_gate".'
        )
    adaptation = parts.adapts_until(method, plan, rule, schedule)
    ladder = parts.ladder(method, plan, rule, adaptation[0])
    settings = Settings(
        schedule=schedule,
        rule=rule,
        tuning=parts.tuning(method, plan, rule, adaptation),
        energy_at="before",
        on_swap=method.on_swap,
        langevin=bool(np.any(ladder.temperature > 0)),
    )
    return settings, ladder


class Saved(NamedTuple):
    """Everything that an exchange needs to resume."""

    arrays: dict[str, np.ndarray]  # of the decisions, by name
    paths: np.ndarray  # (step, replica)
    history: dict[str, np.ndarray]  # (point, ...), by name
    first_rates: list[float]  # by replica


def read_state(
    state: Any, options: str, history: dict[str, np.ndarray], num_replicas: int
) -> Saved:
    """Return the content of a `state_dict`; raise unless it belongs to an exchange with these
    options and a history like this one."""
    if not isinstance(state, dict) or "format" not in state:
        raise ValueError(f"state is {show(state)}; give what state_dict() returned.")
    if state["format"] != FORMAT:
        raise ValueError(
            f"The state has format {show(state['format'])}, and this is format {FORMAT}: load it "
            "with the version of replicax that saved it (format 1: 0.2)."
        )
    _check_options(state.get("options"), options)
    try:
        saved = Saved(
            arrays={name: part.cpu().numpy() for name, part in state["arrays"].items()},
            paths=state["paths"].cpu().numpy(),
            history={name: state["history"][name].cpu().numpy() for name in history},
            first_rates=state["first_rates"].tolist(),
        )
    except (KeyError, AttributeError, TypeError) as problem:
        raise ValueError(
            f"The state is not as state_dict() returned it ({problem!r}): give it complete, with "
            "its tensors as tensors."
        ) from None
    shapes = {name: part.shape[1:] for name, part in history.items()}
    found = {name: part.shape[1:] for name, part in saved.history.items() if part.ndim}
    fits = (num_replicas,) == saved.paths.shape[1:] == np.shape(saved.first_rates)
    if found != shapes or not fits:
        raise ValueError("The state has rows of other shapes: give what state_dict() returned.")
    return saved


def _check_options(stored: Any, options: str) -> None:
    """Raise unless a state was saved with these options."""
    try:
        before, now = dict(json.loads(stored)), json.loads(options)
    except (TypeError, ValueError):
        raise ValueError(
            f"The state has {show(stored)} as its options: give what state_dict() returned."
        ) from None
    other = [name for name in now if before.get(name) != now[name]]
    if other:
        was, are = ({name: held.get(name) for name in other} for held in (before, now))
        raise ValueError(
            f"The state is that of an exchange with {was}, and this one has {are}: give the same "
            "arguments."
        )
