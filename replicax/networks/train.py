"""`train()`: a posterior over networks, epoch by epoch; and how to go on with its folder."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax import api as sampling
from replicax.algorithm.tuning import Gain
from replicax.errors import choose
from replicax.networks import evaluate as examine
from replicax.networks import swag_watch
from replicax.networks.methods import METHODS, Clock, Method
from replicax.networks.problem import Supervised
from replicax.networks.trained import Trained
from replicax.run import checkpoint
from replicax.run import pytrees as trees
from replicax.run.assembly import Assembly
from replicax.run.host_loop import Progress, Watch
from replicax.run.initial import per_replica
from replicax.run.options import Options, at_least
from replicax.run.records import create_records, open_records
from replicax.version import __version__

# The paper's adaptation of networks, per mean loss
GAIN, BUFFER, BUFFER_GAIN = Gain(600.0, 1000.0), 0.1, Gain(60.0, 1000.0, cap=0.05)
_PICK_EVERY = 10  # epochs between two looks at all networks of an ensemble


@dataclass(frozen=True)
class Training:
    """What a run folder must know to go on, beside the options of the sampler."""

    method: str
    epochs: int  # of each network
    momentum: float
    pick_every: int
    test_every: int  # epochs between two tests
    burn_in: int  # epochs before the average begins
    cycle_epochs: int
    unit: str
    num_rows: int
    seed: int
    times: int = 1  # epochs for each that was asked for: more than one for a single network

    @property
    def parts(self) -> Method:
        return METHODS[self.method]

    def clock(self, problem: Supervised) -> Clock:
        return Clock(self.epochs, problem.steps_per_epoch, self.cycle_epochs)

    def kernel(self, problem: Supervised) -> Any:
        return self.parts.kernel(self.momentum, self.clock(problem))

    def watch(self, problem: Supervised, like: Any, starts: Any = None) -> Watch:
        """Tests after every epoch, and the average that the method asks for.

        `like`: shapes of one network, (params, model_state).
        """
        clock, kernel = self.clock(problem), self.kernel(problem)
        weights = self.parts.weights(clock, kernel, self.pick_every, self.burn_in)
        watch = examine.build_watch(problem, weights, self.test_every, starts)
        if not self.parts.draws_gaussian:
            return watch
        return swag_watch.build(watch, problem, clock, kernel, like[0], self.seed)


def train(
    problem: Supervised,
    start: Any,
    *,
    epochs: int,
    method: str = "deo-star",
    num_replicas: int = 10,
    learning_rate: Any = None,
    momentum: float = 0.9,
    temperature: float | None = None,
    target_swap_rate: float = 0.005,
    window: int | None = None,
    gain: Gain = GAIN,
    buffer: float = BUFFER,
    buffer_gain: Gain = BUFFER_GAIN,
    on_swap: str = "keep",
    on_nonfinite: str | None = None,
    average_starts: bool = False,
    keep_networks: bool = False,
    burn_in: int = 0,
    cycle_epochs: int = 100,
    seed: int = 0,
    run_dir: str | Path | None = None,
    progress: bool | None = None,
    callback: Callable[[Progress], Any] | None = None,
    checkpoint_every: int | None = None,
    note: dict[str, Any] | None = None,
) -> Trained:
    """Sample networks; the defaults are the paper's DEO*-mSGD for CIFAR-100 (section 5.2).

    All numbers are per mean loss, whatever the problem's unit.

    Args:
        problem: made by `rx.supervised` or `rx.classification`, with a test.
        start: (params, model_state); a function of a key that returns it, such as `network.init`;
            `rx.per_replica((params, model_state))`; or the folder of a run, for its last networks.
        epochs: of each replica. Methods that have one network take `num_replicas` times as many.
        method: "deo-star", "deo", "ensemble", "sgld", "cyc-sghmc", "cyc-swag" or "pretrain".
        learning_rate: (cold, hot) for methods with a ladder, one number for others.
        momentum: of the exploration kernel.
        temperature: of the posterior on the coldest rung; 0 injects no noise.
        target_swap_rate, window, gain, buffer, buffer_gain: as in `rx.sample`.
        on_swap: "keep" the momentum of a replica that swaps, or "reset" it as the authors do.
        on_nonfinite: "restart" a network whose loss is not finite from a colder one, or "stop";
            by default the former with a ladder and the latter without, where networks would
            become twins.
        average_starts: average the predictions of the start networks, too (apart).
        keep_networks: store the coldest network of every epoch; else only predictions are kept.
        burn_in: epochs before the average begins.
        cycle_epochs: of the methods that go in cycles.
        note: plain data to keep in the run folder.
    """
    training, made = assemble(problem, dict(locals()))
    if isinstance(start, str | Path):
        start = per_replica(networks_of(start, problem, made.num_replicas))
    carry, described = made.starting_carry(start)
    starts = _first_chain(carry.state.points) if average_starts else None
    like = jax.eval_shape(trees.first, carry.state.points)
    watch = training.watch(problem, like, starts)
    records = create_records(None if run_dir is None else Path(run_dir))
    meta = {
        "version": __version__,
        "options": made.options.to_json(),
        "params": described,
        "batches": made.batches.describe(),
        "resolved": made.describe(),
        "training": asdict(training),
        "machine": describe_device(),
        "note": note or {},
    }
    records.write_meta(meta)
    num_steps = made.options.num_steps
    sampling.go_on(made, carry, made.no_trips(), records, num_steps, progress, callback, watch)
    return Trained(records, like)


def assemble(problem: Supervised, given: dict[str, Any]) -> tuple[Training, Assembly]:
    """The parts of a run from the arguments of `train`; those not given have its defaults."""
    defaults = inspect.signature(train).parameters.items()
    given = {name: given.get(name, parameter.default) for name, parameter in defaults}
    for name in ("epochs", "num_replicas", "cycle_epochs"):
        at_least(name, given[name], 1)
    at_least("burn_in", given["burn_in"], 0)
    parts = METHODS[choose("method", given["method"], METHODS)]
    epochs = given["epochs"] * given["num_replicas"] if parts.is_single else given["epochs"]
    training = Training(
        method=given["method"],
        epochs=epochs,
        times=epochs // given["epochs"],
        momentum=given["momentum"],
        pick_every=min(_PICK_EVERY, epochs),
        test_every=min(parts.test_every, epochs),
        burn_in=given["burn_in"],
        cycle_epochs=min(given["cycle_epochs"], epochs),
        unit=problem.unit,
        num_rows=problem.num_rows,
        seed=given["seed"],
    )
    return training, _assembly(problem, training, _options(problem, training, given))


def _assembly(problem: Supervised, training: Training, chosen: Options) -> Assembly:
    every = training.test_every * problem.steps_per_epoch
    return Assembly(chosen, problem.target, problem.batches, watch_every=every)


def resume_training(
    run_dir: str | Path,
    problem: Supervised,
    *,
    epochs: int | None = None,
    progress: bool | None = None,
    callback: Callable[[Progress], Any] | None = None,
) -> Trained:
    """Go on with a run folder of `train`, bit for bit; more `epochs` make it longer."""
    records = open_records(run_dir)
    training, made, like, step, carry, trips, memory = _restore(Path(run_dir), problem, epochs)
    watch = training.watch(problem, like)
    watch.memory = memory
    records.truncate(made.program.lengths(step))
    meta = {**records.meta, "options": made.options.to_json(), "training": asdict(training)}
    records.write_meta(meta)
    num_steps = made.options.num_steps
    sampling.go_on(made, carry, trips, records, num_steps, progress, callback, watch)
    return Trained(records, like)


def networks_of(run_dir: str | Path, problem: Supervised, num_replicas: int | None = None) -> Any:
    """The last networks of a run, (params, model_state) with a leading axis from cold to hot."""
    _, _, _, _, carry, _, _ = _restore(Path(run_dir), problem)
    replica_at = np.asarray(carry.state.replica_at[0])
    if num_replicas is not None and num_replicas > len(replica_at):
        raise ValueError(
            f"{run_dir} holds {len(replica_at)} networks, but {num_replicas} are needed to start "
            "from: write fewer replicas, or pretrain more networks."
        )
    wanted = replica_at[:num_replicas]
    return jax.tree.map(lambda leaf: leaf[wanted], _first_chain(carry.state.points))


def _restore(folder: Path, problem: Supervised, epochs: int | None = None):
    """Everything that the last checkpoint in a folder of `train` stands for."""
    meta = open_records(folder).meta
    if "training" not in meta:
        raise ValueError(f"{folder} was not made by rx.train; rx.resume goes on with it.")
    training = Training(**meta["training"])
    if (problem.unit, problem.num_rows) != (training.unit, training.num_rows):
        raise ValueError(
            f"{folder} was trained on {training.num_rows} rows in the unit {training.unit!r}; the "
            f"problem has {problem.num_rows} in {problem.unit!r}. Give the same problem again."
        )
    given: dict[str, Any] = {}
    if epochs is not None:
        before = training.epochs // training.times
        if epochs < before:
            raise ValueError(f"epochs is {epochs}, but the run was made for {before}.")
        if training.method == "pretrain":
            raise ValueError("The learning rate of a pretraining follows its length: start anew.")
        training = replace(training, epochs=epochs * training.times)
        given["num_steps"] = training.epochs * problem.steps_per_epoch
    chosen = Options.from_json(meta["options"], given)
    made = _assembly(problem, training, chosen)
    described = meta["params"]
    if described["structure"] is None:
        raise ValueError(
            f"The networks in {folder} have containers of their own kind, which a folder cannot "
            "hold: make params and model_state of dicts, lists and tuples to go on with a run."
        )
    zeros = [
        jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype))
        for shape, dtype in zip(described["shapes"], described["dtypes"], strict=True)
    ]
    like = trees.rebuild(described, zeros)
    zero = lambda point: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), point)  # noqa: E731
    carry = jax.eval_shape(lambda: made.first_carry(zero(like)))
    memory = jax.eval_shape(lambda: training.watch(problem, like).memory)
    step = checkpoint.latest_step(folder)
    template = (carry, made.no_trips(), memory)
    carry, trips, memory = checkpoint.restore(folder, step, template)
    carry, memory = jax.tree.map(jnp.asarray, (carry, memory))
    return training, made, like, step, carry, trips, memory


def _options(problem: Supervised, training: Training, given: dict[str, Any]) -> Options:
    """What `rx.sample` would be told."""
    method, steps = training.parts, problem.steps_per_epoch
    rate = method.learning_rate if given["learning_rate"] is None else given["learning_rate"]
    if np.ndim(rate) and not method.has_ladder:
        raise ValueError(
            f'learning_rate is {rate}; the method "{training.method}" has no ladder: give one.'
        )
    temperature = given["temperature"]
    temperature = method.temperature if temperature is None else temperature
    scale = problem.scale
    chosen = {
        **{name: parameter.default for name, parameter in _DEFAULTS.items()},
        "num_steps": training.epochs * steps,
        "num_replicas": 1 if method.is_single else given["num_replicas"],
        "learning_rate": problem.learning_rate(rate),
        "temperature": _temperatures(problem, method, temperature, given["num_replicas"]),
        "target_swap_rate": given["target_swap_rate"],
        "window": given["window"],
        "schedule": method.schedule,
        "kernel": training.kernel(problem),
        "gain": given["gain"],
        "buffer": scale * given["buffer"],
        "buffer_gain": _scaled(given["buffer_gain"], scale),
        "energy_at": "before",
        "on_swap": given["on_swap"],
        "burn_in": steps - 1,  # draws are taken at the end of an epoch
        "thin": steps,
        "seed": given["seed"],
        "keep_draws": given["keep_networks"],
        "history_every": steps,
        "on_nonfinite": given["on_nonfinite"] or ("restart" if method.has_ladder else "stop"),
        "checkpoint_every": given["checkpoint_every"],
    }
    return Options(**chosen)


_DEFAULTS = {
    name: parameter
    for name, parameter in inspect.signature(sampling.sample).parameters.items()
    if name in Options.__dataclass_fields__
}


def _temperatures(problem: Supervised, method: Method, value: float, num_replicas: int) -> Any:
    """On the coldest rung of a ladder; on every rung of replicas that do not exchange."""
    temperature = float(problem.temperature(value))
    alone = method.has_ladder or method.is_single
    return temperature if alone else np.full(num_replicas, temperature)


def _scaled(gain: Any, by: float) -> Any:
    """The gain of a buffer in the unit of the energies."""
    if isinstance(gain, Gain):
        return replace(gain, scale=gain.scale * by, cap=gain.cap * by)
    if callable(gain):
        return lambda step: by * gain(step)  # type: ignore[operator]
    return by * gain


def _first_chain(points: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], points)


def describe_device() -> str:
    """The machine in words, for results that are read elsewhere."""
    device = jax.devices()[0]
    return f"{device.device_kind}, jax {jax.__version__}"
