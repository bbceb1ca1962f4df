"""`Exchange`: replica exchange in a PyTorch training loop.

The JAX engine decides swaps and adapts ladder and buffer (`decisions.py`); models and optimizers
stay in place, and learning rates move between the optimizers.
"""

import json
from typing import Any

import numpy as np

from replicax.errors import at_least, check_number, choose
from replicax.interop.extras import import_extra
from replicax.run.counters import PAIR_COUNTS
from replicax.run.options import SEEDS, whole
from replicax.run.round_trips import completed_trips
from replicax.run.storage.encoding import to_plain
from replicax.torch import saved as saved_states
from replicax.torch.decisions import Decisions, prepare_jax
from replicax.torch.langevin import Langevin, silence
from replicax.torch.losses import check_finite, to_host
from replicax.torch.optimizers import (
    Rates,
    check_factors,
    check_langevin,
    check_optimizers,
    reset_memory,
    scheduled_factor,
)
from replicax.torch.ranks import Ranks
from replicax.torch.records import Rows
from replicax.torch.saved import Saved
from replicax.torch.settings import build_method, build_settings


class Exchange:
    """Replica exchange between PyTorch models that are trained in one loop, each with its own
    optimizer.

    Call `step(losses)` after the optimizers have stepped. Two models that swap exchange rungs:
    learning rates are set in place in the `param_groups`, and nothing else changes.

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
        self._torch = torch = import_extra("torch", "torch", "rx.torch.Exchange")
        prepare_jax()
        choices = dict(
            learning_rate=learning_rate,
            target_swap_rate=target_swap_rate,
            window=window,
            schedule=schedule,
            gain=gain,
            buffer=buffer,
            buffer_gain=buffer_gain,
            adapt=adapt,
            temperature=temperature,
            on_swap=on_swap,
        )
        self._ranks = Ranks(torch, process_group)
        self._optimizers, told, scheduled, error = [], "", 1.0, None
        others = {"seed": seed, "on_nonfinite": on_nonfinite, "history_every": history_every}
        try:
            self._optimizers = check_optimizers(torch, optimizers)
            scheduled = scheduled_factor(self._optimizers)
            at_least("history_every", history_every, 1)
            choose("on_nonfinite", on_nonfinite, ("stop", "ignore"))
            method = build_method(**choices)
            whole(*SEEDS)("seed", seed)
            told = json.dumps(to_plain(method) | others)
            if np.any(np.asarray(temperature, float) > 0):
                check_langevin(torch, self._optimizers)
        except ValueError as problem:  # the other ranks must know about it
            error = problem
        factors = self._ranks.agree(len(self._optimizers), told, scheduled, error)
        self._settings, ladder = build_settings(build_method(**choices), self.num_replicas)
        self._plain = json.dumps(json.loads(told) | {"num_replicas": self.num_replicas})
        self._history_every, self._ignores = history_every, on_nonfinite == "ignore"
        start = 0.0 if isinstance(buffer, str) else float(buffer)
        self._decisions = Decisions(self._settings, ladder, start, seed)
        self._paths = Rows((self.num_replicas,), np.int16)
        self._points = {name: Rows(shape, float) for name, shape in self._point_shapes().items()}
        self._rates = Rates(torch, self._optimizers, self._ranks.first)
        self._rates.factor = check_factors(factors)
        self.num_steps = 0  # done
        self._set_rates()
        silence(self._optimizers)
        self._langevin = Langevin(torch, self, seed) if self._settings.langevin else None

    def step(self, losses: Any) -> None:
        """Decide which models swap rungs, given the losses of this step, and set learning rates.

        `losses` are numbers or scalar tensors, one per optimizer of this process; or one tensor of
        them. On an error, nothing changes.
        """
        here, factor, error = None, 1.0, None
        try:
            here = to_host(self._torch, losses, len(self._optimizers))
            if not self._ignores:
                check_finite(here)
            factor = self._rates.changed()
        except ValueError as problem:  # the other ranks must know about it
            error = problem
        gathered = self._ranks.gather(here, self.num_steps, factor, error)
        if any(factor != 1.0 for factor in gathered.factors):
            factor = check_factors(gathered.factors)
        factor = self._rates.factor * factor
        before = self._rung_of
        self._decisions.advance(gathered.losses)
        self._rates.factor = factor
        self.num_steps += 1
        self._set_rates()
        self._paths.append(self._rung_of)
        if self.num_steps % self._history_every == 0:
            self._record()
        if self._settings.on_swap == "reset":
            for number, optimizer in enumerate(self._optimizers, self._ranks.first):
                if before[number] != self._rung_of[number]:
                    reset_memory(self._torch, optimizer)

    def _set_rates(self) -> None:
        """Read the rungs and the ladder, and set the learning rates of the optimizers of this
        process."""
        self._rung_of, ladder = self._decisions.rung_of(), self._decisions.learning_rates()
        here = self._rung_of[self._ranks.first : self._ranks.first + len(self._optimizers)]
        self._rates.write([ladder[rung] for rung in here])

    def _point_shapes(self) -> dict[str, tuple[int, ...]]:
        pairs, rungs = (self.num_replicas - 1,), (self.num_replicas,)
        counts = {name: pairs for name in PAIR_COUNTS}
        return {"step": (), "learning_rate": rungs, "buffer": (), "energy": rungs, **counts}

    def _record(self) -> None:
        read = self._decisions.read
        point = {
            "step": self.num_steps,
            "learning_rate": self.learning_rates,
            "buffer": self.buffer,
            "energy": read(".counters.energy"),
            **dict(zip(PAIR_COUNTS, read(".counters.pairs"))),
        }
        for name, values in point.items():
            self._points[name].append(values)

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
        """A factor of all learning rates: that of LR schedulers, or one that you set, which applies
        from the next step on."""
        return self._rates.factor

    @factor.setter
    def factor(self, value: float) -> None:
        check_number("factor", value, lambda x: x > 0, "it must be a number above 0")
        self._rates.factor = float(value)
        self._set_rates()

    @property
    def index_paths(self) -> np.ndarray:
        """The rung of every model after every step  (step, replica)."""
        return self._paths.values.copy()

    @property
    def history(self) -> dict[str, np.ndarray]:
        """Histories by name, each (point, ...), every `history_every` steps, as in `rx.Posterior`:
        learning rates and losses by rung, the buffer, and counts so far by pair."""
        return {name: rows.values.copy() for name, rows in self._points.items()}

    def summary(self) -> dict[str, Any]:
        """Return rates, round trips and the ladder as plain data."""
        read, steps = self._decisions.read, self.num_steps
        verdicts, windows, swaps = read(".counters.pairs")
        counted = max(steps - self._settings.tuning.measure_steps, 1)
        trips = int(completed_trips(read(".counters.turns")).sum())
        return {
            "num_steps": steps,
            "num_replicas": self.num_replicas,
            "schedule": self._settings.schedule.name,
            "window": self.window,
            "target_swap_rate": self._settings.tuning.target_swap_rate,
            "verdict_rate": (verdicts / counted).tolist(),
            "window_swap_rate": (swaps / np.maximum(windows, 1)).tolist(),
            "round_trips": trips,
            "round_trips_per_1000_steps": 1000 * trips / counted,
            "learning_rates": self.learning_rates.tolist(),
            "factor": self.factor,
            "buffer": self.buffer,
            "cold": self.cold,
            "rung_of": self.rung_of,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the exchange needs to resume exactly; the same on all ranks."""
        history = {name: rows.values for name, rows in self._points.items()}
        saved = Saved(self._decisions.arrays(), self._paths.values, history, self.factor)
        return saved.to_dict(self._torch, self._plain)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a `state_dict` of an exchange with the same arguments, and set learning rates.

        Load the optimizers too: their state is not included.
        """
        saved = saved_states.read(state, self._plain, self._paths, self._points)
        self._decisions.load(saved.arrays)
        self._rates.factor = saved.factor
        self._paths.replace(saved.paths)
        for name, rows in self._points.items():
            rows.replace(saved.history[name])
        self.num_steps = int(self._decisions.read(".state.step"))
        self._set_rates()

    def __getstate__(self) -> Any:
        """Refuse to be copied or pickled."""
        raise TypeError(
            "An Exchange belongs to its optimizers and cannot be copied or pickled: save "
            "state_dict(), and load it into an Exchange of the other optimizers."
        )
