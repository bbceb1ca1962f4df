"""Methods: which algorithm runs, in one word, and all that only this algorithm knows.

A `Method` is plain data, made by a function as kernels are: `posterior` for draws with the law of
the target, the paper's `deo_star` and `deo`, and the methods to sample networks. What is left open
(None) suits the target or the networks; `resolve.py` decides it.

The command line reads `Method` to show its help: neither JAX nor NumPy is imported here.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from replicax.errors import (
    at_least,
    check_flag,
    check_function,
    check_number,
    choose,
    is_whole,
    not_negative,
    show,
    suggest,
)
from replicax.run.options import (
    AUTO,
    below_one,
    check_rungs,
    checked,
    number,
    one_of,
    option,
    positive,
    whole,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as Rates  # one rate, (cold, hot), one per rung, or a word

AVERAGES = ("coldest", "all", "every", "last", "gaussian", "nothing")
RATE_SCHEDULES = ("constant", "cosine", "cyclical", "stepwise")


def _check_name(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {show(value)}; give the method a name, as text.")


def _check_rate(name: str, value: Any) -> None:
    if callable(value):
        raise ValueError(
            f"{name} is a function; give the rate itself, and its schedule as rate_schedule, a "
            "function of the step, such as optax.cosine_decay_schedule(1.0, num_steps)."
        )
    check_rungs(name, value)


def _check_sample_from(name: str, value: Any) -> None:
    if not (isinstance(value, str) and value == "validation"):
        check_number(name, value, lambda x: 0 < x < 1, 'it must be a share, or "validation"')


def _check_adapt(name: str, value: Any) -> None:
    if is_whole(value):
        at_least(name, value, 0)
    else:
        check_flag(name, value, None)


def check_rate_schedule(name: str, schedule: Any) -> None:
    """Raise unless this is the name of a learning-rate schedule or a function of the step."""
    if callable(schedule) and not isinstance(schedule, type):
        check_function(name, schedule, "step")
    else:
        choose(name, schedule, RATE_SCHEDULES)


@dataclass(frozen=True)
class Method:
    """Which algorithm runs, and all that only it knows; every field except the name is optional.

    Args:
        name: its name in results and messages.
        learning_rate: (cold, hot), geometric and adapted; one value per rung; one for all; or
            "auto", tuned by rung in the burn-in to the kernel's own error, of networks found by a
            range test, or measured in the burn-in if the kernel is "underdamped". In the unit of
            the energy, of networks relative to the mean loss.
        temperature: the cold rung's (SGD above), of networks without a ladder that of all;
            (cold, hot), up to `inf`, the prior, for `rx.bayesian` posteriors of all rows; one per
            rung; or "auto", from 1 to where neighbours swap half of their attempts, for rungs of
            equal rejection. In the unit of the energy, of networks that of the posterior, 1 the
            exact one.
        kernel: how replicas move: "hmc", "mala", "sgld", "momentum", "sghmc",
            "underdamped", "adam", "preconditioned", an optax transform of learning rate 1, or one
            of `rx.kernels`;
            of networks "auto", momentum or Adam, as a range test finds.
        schedule: which pairs may swap: "deo_star", "deo", "seo", "adj", "ape", "exactly_one",
            "no_gate", "none", or one of `rx.schedule`.
        rule: who swaps: "deterministic", "metropolis", "bias_corrected", or one of `rx.swap`.
        window: steps of a window; the optimal one of Theorem 1 unless given.
        swap_every: steps from one attempt to swap to the next.
        energy_at: the energy that decides a swap: "moved", of the moved states; "before", the value
            that the gradient computed anyway; "all_rows", over all rows of the data. Rules that
            correct for noise take "moved" energies on a further mini-batch.
        on_swap: "keep": momentum travels with its replica, and is scaled to the law of the new rung
            under rules that use temperatures; "reset": a swap sets it to zero.
        target_swap_rate: how often the swap rule should say yes, S.
        gain, buffer_gain: step sizes of the self-tuning of ladder and buffer.
        buffer: where the buffer starts, in the unit of the energy or the mean loss, or "auto".
        adapt: False, or the number of steps after which ladder and buffer freeze. With rules that
            use temperatures, True adapts those, to equal rejection, until the end of the burn-in.
        jumps: proposals of a learned mixture, such as 64, that the coldest replica takes after
            every step, their energies evaluated together; 0, the default: none. Only with adjusted
            kernels.
        redraws: draws from the prior, of all parameters or a block, that are offered to every
            replica after its move, those of a step of one block; 4 where the prior can be drawn
            from and moves are adjusted.
        draws_per_step: positions on the path of the jumps that are kept as draws.
        momentum: of the kernels "momentum" and "sghmc".
        rate_schedule: the learning rates over time: "constant"; a function of the step that returns
            a factor, such as optax.cosine_decay_schedule(1.0, num_steps); and for networks "cosine"
            (to 0 at the end, after a warm-up of `warmup_epochs`), "cyclical" (cycles of
            `cycle_epochs`) or "stepwise" (divided by 5 after 70 % and after 90 %).
        sample_from: the share of the epochs after which networks trained along a cosine are
            sampled, or "validation": once their loss on rows held out has stopped falling.
        pretrain: the share of the epochs in which new networks are trained, along a cosine, before
            they are sampled; 0.375 of methods with a name, as the paper's 300 epochs of 800, and 0
            of networks that were trained before. Methods with one network train it as long.
        pretrain_rate: the peak learning rate of this training, found by a range test unless given.
        clip_norm: the largest norm of a gradient; larger ones are cut.
        steps_per_move: of the kernel "underdamped", steps whose gradients make one move of a
            network; in them it sees all rows, so that no noise of mini-batches heats it. Where
            rates are measured, as few as keep a step cheap, of small networks 1.
        averages: of networks: the "coldest" of every epoch, "all" every tenth epoch or "every" one,
            "last", all
            after the last epoch, networks drawn from a "gaussian" fitted to each cycle, or
            "nothing".
        is_single: one network, trained for as many epochs as all replicas would have together.
        tempers_likelihood: rungs of networks sample prior x likelihood^(1 / temperature).
        test_every: epochs between evaluations of networks.
        keeps_law: what is left open is chosen so that draws have the law of the target.
        exact: of sweeps, energies are those of all rows; else estimated from some of them.
    """

    name: str = option("", check=_check_name)
    learning_rate: Any = option(
        None,
        "Coldest and hottest learning rate, one per rung, or one for all.",
        _check_rate,
        metavar="COLD HOT",
        show_default="the method's",
    )
    temperature: Any = option(
        None,
        "Temperature of the coldest rung, coldest and hottest, or one per rung; 0: no noise.",
        check_rungs,
        metavar="COLD HOT",
        show_default="the method's",
    )
    kernel: Any = option(
        None,
        "Kernel: sgld, momentum, sghmc, adam or preconditioned; of exact draws hmc or mala.",
        on_resume="give again",
        show_default="the method's",
    )
    schedule: Any = option(
        None,
        "Swap schedule: deo_star, deo, seo, adj, ape, exactly_one, no_gate or none.",
        on_resume="give again",
        command="sample",
        show_default="the method's",
    )
    rule: Any = option(
        None,
        "Swap rule: deterministic, metropolis or bias_corrected.",
        on_resume="give again",
        command="sample",
        show_default="the method's",
    )
    window: int | None = option(
        None, "Steps per window.", whole(1), metavar="W", show_default="Theorem 1"
    )
    swap_every: int | None = option(None, check=whole(1))
    energy_at: str | None = option(None, check=one_of("moved", "before", "all_rows"))
    on_swap: str = option(
        "keep",
        "Momentum of a network that swaps: keep or reset.",
        one_of("keep", "reset"),
        command="train",
    )
    target_swap_rate: float | None = option(
        None,
        "Target swap rate per step.",
        number(
            lambda x: 0 < x < 1,
            "it is the rate at which the rule says yes and must lie in (0, 1), such as 0.4",
        ),
        flag="--swap-rate",
        metavar="S",
        show_default="0.4; of networks from 0.005, as fits the run",
    )
    gain: Any = option(None, on_resume="give again")
    buffer: Any = option(None)  # checked where the tuning is built
    buffer_gain: Any = option(None, on_resume="give again")
    adapt: bool | int | None = option(
        None,
        "Adapt ladder and buffer.",
        _check_adapt,
        show_default="unless the rule uses temperatures",
    )
    jumps: int | None = option(None, check=whole(0))
    redraws: int | None = option(None, check=whole(0))
    draws_per_step: int | None = option(None, check=whole(1))
    momentum: float = option(0.9, check=below_one)
    rate_schedule: Any = option(
        "constant",
        "Learning rates over time: constant, cosine, cyclical or stepwise.",
        check_rate_schedule,
        on_resume="give again",
        command="train",
        show_default="the method's",
    )
    warmup_epochs: float | None = option(
        0.0,
        "Epochs of warm-up before a cosine schedule.",
        lambda name, value: value is None or not_negative(name, value),
        command="train",
        metavar="N",
        show_default="0; of deep-ensemble a twentieth",
    )
    cycle_epochs: int = option(
        100, "Epochs per cycle of cyclical methods.", whole(1), command="train"
    )
    sample_from: Any = option(None, check=_check_sample_from)
    pretrain: float | None = option(
        None,
        "Share of the epochs in which new networks are trained before they are sampled.",
        below_one,
        command="train",
        metavar="SHARE",
        show_default="0.375 of new networks",
    )
    pretrain_rate: float | None = option(
        None,
        "Peak learning rate of this training.",
        positive,
        command="train",
        metavar="RATE",
        show_default="found by a range test",
    )
    clip_norm: float | None = option(
        None,
        "Clip gradients to this norm.",
        positive,
        command="train",
        metavar="L",
    )
    steps_per_move: int | None = option(
        None,
        "Steps that see all rows, for one move of a sampled network.",
        whole(1),
        command="train",
        metavar="N",
        show_default="as few as keep a step cheap",
    )
    averages: str = option("coldest", check=one_of(*AVERAGES))
    is_single: bool = option(False, check=check_flag)
    tempers_likelihood: bool = option(False, check=check_flag)
    test_every: int = option(1, check=whole(1))
    keeps_law: bool = option(False, check=check_flag)
    exact: bool = option(True, check=check_flag)

    def __post_init__(self) -> None:
        checked(self)
        if self.is_single and self.has_ladder:
            raise ValueError(
                f"schedule is {show(self.schedule)}, but is_single means one network, which has no "
                'ladder: write schedule="none".'
            )
        if self.draws_gaussian and not self.is_cyclical:
            raise ValueError(
                'averages is "gaussian", which is fitted to the end of each cycle: write '
                'rate_schedule="cyclical".'
            )
        if self.draws_gaussian and self.test_every > 1:
            raise ValueError(
                f'test_every is {self.test_every}, and a "gaussian" is fitted to the networks of '
                "all epochs: leave out test_every."
            )

    @property
    def has_ladder(self) -> bool:
        """Whether replicas exchange rungs."""
        schedule = self.schedule
        if isinstance(schedule, str):
            return schedule != "none"
        if schedule is None:
            return self.keeps_law
        from replicax.algorithm.schedule import NoExchange

        return not isinstance(schedule, NoExchange)

    @property
    def picks(self) -> bool:
        """Whether any networks are averaged."""
        return self.averages != "nothing"

    @property
    def picks_all(self) -> bool:
        """Whether all networks are averaged every few epochs, instead of the coldest of every
        epoch."""
        return self.averages == "all"

    @property
    def measures_rates(self) -> bool:
        """Whether the rates at which networks are sampled are measured in the run."""
        is_open = isinstance(self.learning_rate, str) or self.sample_from is not None
        return isinstance(self.kernel, str) and self.kernel == "underdamped" and is_open

    @property
    def draws_gaussian(self) -> bool:
        """SWAG: networks are drawn around each cycle's mean."""
        return self.averages == "gaussian"

    @property
    def is_cyclical(self) -> bool:
        return self.rate_schedule == "cyclical"

    @property
    def follows_length(self) -> bool:
        """Whether the learning rate depends on the number of epochs."""
        return self.rate_schedule in ("stepwise", "cosine")


def posterior(kernel: Any = None, **more: Any) -> Method:
    """Draws with the law of the target: the default of `rx.sample`.

    Moves are adjusted ("hmc"), swaps are Metropolis's on all the data, step sizes and temperatures
    tune themselves in the burn-in, a third of the run, and are then frozen. Rows in blocks of a
    `batch_size`, or in no arrays, are sampled by `rx.sweeps`. `more` are fields of `rx.Method`.
    """
    usual = {"learning_rate": AUTO, "temperature": AUTO, "keeps_law": True}
    return _method("posterior", more, kernel=kernel, **usual)


def sweeps(jumps: int = 128, exact: bool = True, **more: Any) -> Method:
    """Exact draws of an `rx.bayesian` posterior of very many rows, in a handful of sweeps over
    them: modes are found on some of the rows, and each sweep evaluates `jumps` proposals of every
    chain at once. `num_steps` counts the sweeps whose draws are kept. The default where all rows
    are dear for a ladder, by counted evaluations, and where they are no arrays.

    With `exact=False` all rows are seen in the few sweeps alone that lead to the minima; then
    energies are estimated from some of them, as many as it takes for an error below .05 at the
    draws, which `posterior.sweeps` tells."""
    return _method("sweeps", more, jumps=jumps, exact=exact, keeps_law=True)


def deep_ensemble(learning_rate: "Rates" = AUTO, **more: Any) -> Method:
    """Independent networks, trained to the end and averaged: the default of `rx.train`.

    The learning rate rises in a warm-up and falls along a cosine to 0 at the end of the run. A
    range test finds it, and whether momentum SGD or Adam suits the network; with a `learning_rate`
    and no `kernel` it is momentum SGD. `more` are fields of `rx.Method`.
    """
    kernel = AUTO if learning_rate == AUTO else "momentum"
    usual = {"kernel": kernel, "rate_schedule": "cosine", "averages": "last"}
    return _method("deep-ensemble", more, learning_rate=learning_rate, warmup_epochs=None, **usual)


def ensemble_then_sample(
    learning_rate: "Rates" = AUTO, *, sample_from: Any = "validation", **more: Any
) -> Method:
    """Independent networks, trained along a cosine, then each sampled at temperature 1.

    The cosine ends once the loss on rows held out has stopped falling, or after the share
    `sample_from` of the epochs. In the first half of what is left the rate of the sampling is
    measured; networks of all epochs of the second half are averaged. With `kernel="momentum"` that
    rate instead falls from half of the peak to a tenth of it. If the loss falls until the end, this
    is a deep ensemble: `trained.decision` says which it was, and why.
    """
    usual = {"learning_rate": learning_rate, "sample_from": sample_from, "temperature": 1.0}
    usual |= {"kernel": "underdamped"}
    usual |= {"rate_schedule": "cosine", "warmup_epochs": None, "averages": "last"}
    return _method("ensemble-then-sample", more, **usual)


def deo_star(
    learning_rate: "Rates | None" = None, *, window: int | None = None, **more: Any
) -> Method:
    """The paper's method: SGD rungs whose learning rates act as temperatures, the deterministic
    rule, and swaps in the windows of Theorem 1. `more` are fields of `rx.Method`."""
    usual = {"learning_rate": learning_rate, "schedule": "deo_star", "window": window}
    return _method("deo-star", more, **usual)


def deo(learning_rate: "Rates | None" = None, **more: Any) -> Method:
    """The paper's method without windows: even and odd pairs take turns of one step."""
    return _method("deo", more, learning_rate=learning_rate, schedule="deo")


_MEASURED = {"learning_rate": AUTO, "kernel": "underdamped"}


def _is_left_open(learning_rate: Any, more: dict[str, Any]) -> bool:
    """Return whether a run has to find how networks are sampled at a temperature."""
    is_open = learning_rate is None or (isinstance(learning_rate, str) and learning_rate == AUTO)
    return is_open and not {"kernel", "momentum"} & more.keys()


def sghmc_pt(learning_rate: "Rates | None" = None, **more: Any) -> Method:
    """Networks at temperature 1: trained members, each of which is sampled by Langevin moves with
    a momentum, at rates that the run measures.

    Without exchange: a ladder of networks has to begin close to temperature 1, and takes all
    members but one away from there. `temperature=(1.0, hot)` or "auto" makes one, of tempered
    likelihoods with swaps on further mini-batches; a `learning_rate` is the paper's ladder, on the
    mini-batches of the problem.
    """
    usual: dict[str, Any] = {"schedule": "deo", "rule": "bias_corrected", "swap_every": 10}
    usual |= {"temperature": AUTO, "learning_rate": learning_rate, "kernel": "sghmc"}
    if _is_left_open(learning_rate, more):
        usual |= _MEASURED
        is_ladder = not isinstance(more.get("temperature", 1.0), int | float)
        if not (
            is_ladder or {"schedule", "rule", "swap_every", "energy_at", "adapt"} & more.keys()
        ):
            alone = {"schedule": "none", "rule": None, "swap_every": None}
            usual |= {"temperature": 1.0, "averages": "every"} | alone
    return _method("sghmc-pt", more, tempers_likelihood=True, **usual)


def ensemble(learning_rate: "Rates | None" = None, **more: Any) -> Method:
    """Independent networks, all averaged every tenth epoch."""
    return _method("ensemble", more, learning_rate=learning_rate, averages="all")


def sgld(learning_rate: "Rates | None" = None, **more: Any) -> Method:
    """Independent replicas with Langevin noise: with a momentum and at rates that the run measures;
    with a `learning_rate` without momentum, averaged every tenth epoch."""
    usual = {"learning_rate": learning_rate, "kernel": "sgld", "averages": "all"}
    if _is_left_open(learning_rate, more):
        usual |= _MEASURED | {"averages": "every"}
    return _method("sgld", more, temperature=1.0, **usual)


def cyc_sghmc(
    learning_rate: "Rates | None" = None, *, cycle_epochs: int = 100, **more: Any
) -> Method:
    """One network in cycles, averaged where they are slow (Zhang et al. 2020)."""
    usual = {"learning_rate": learning_rate, "cycle_epochs": cycle_epochs, "temperature": 1e-3}
    return _method("cyc-sghmc", more, is_single=True, rate_schedule="cyclical", **usual)


def cyc_swag(
    learning_rate: "Rates | None" = None, *, cycle_epochs: int = 100, **more: Any
) -> Method:
    """One network in cycles; networks drawn from a Gaussian fitted to each are averaged."""
    usual = {"learning_rate": learning_rate, "cycle_epochs": cycle_epochs, "averages": "gaussian"}
    return _method("cyc-swag", more, is_single=True, rate_schedule="cyclical", **usual)


def pretrain(learning_rate: "Rates" = 0.1, **more: Any) -> Method:
    """Start networks from nothing; none are averaged."""
    usual = {"averages": "nothing", "test_every": 10, "rate_schedule": "stepwise"}
    return _method("pretrain", more, learning_rate=learning_rate, **usual)


METHODS: dict[str, Callable[..., Method]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        posterior,
        sweeps,
        deep_ensemble,
        ensemble_then_sample,
        deo_star,
        deo,
        sghmc_pt,
        ensemble,
        sgld,
        cyc_sghmc,
        cyc_swag,
        pretrain,
    )
}


def _method(name: str, given: dict[str, Any], /, **usual: Any) -> Method:
    """Return a method of what is given, and the usual values for others."""
    known = [entry.name for entry in fields(Method)]
    for key in given:
        if key not in known:
            raise ValueError(f"{key} is not a part of a method.{suggest(key, known)}")
    return Method(**{"name": name, **usual, **given})


def as_method(method: Any) -> Method:
    """Return a method, from its name or as given."""
    if isinstance(method, Method):
        return method
    for made in METHODS.values():
        if method is made:  # as it is, without its options
            return made()
    return METHODS[choose("method", method, METHODS)]()


def written(name: str, arguments: str) -> str:
    """Return how the method of this name is written with some arguments.

    >>> written("deo-star", "window=4"), written("seo", "window=4")
    ('rx.deo_star(window=4)', 'rx.Method("seo", window=4)')
    """
    if name in METHODS:
        return f"rx.{METHODS[name].__name__}({arguments})"
    return f'rx.Method("{name}", {arguments})'


def refuse_unknown(
    call: Callable, unknown: dict[str, Any], method: "str | Method | None" = None
) -> None:
    """Raise if a call got arguments that it has not; of those of a method, say how to write it.

    `method` is that of the call.
    """
    if not unknown:
        return
    moved = [entry.name for entry in fields(Method) if entry.name in unknown]
    if not moved:
        known, name = inspect.signature(call).parameters, next(iter(unknown))
        raise TypeError(f"rx.{call.__name__} has no argument {name}.{suggest(name, known)}")
    values = ", ".join(f"{name}=..." for name in moved)
    exact = f"method=rx.posterior({values}) for exact draws, or " * (method == "posterior")
    rates = "" if "learning_rate" in moved else "learning_rate=(cold, hot), "
    written_so = f"{exact}method=rx.deo_star({rates}{values}) for the paper's ladder"
    defaults = ("posterior", "deep-ensemble")
    if isinstance(method, Method) or (isinstance(method, str) and method not in defaults):
        name = method.name if isinstance(method, Method) else method
        written_so = f"method={written(name, values)}"
    verb = "belong" if len(moved) > 1 else "belongs"
    raise ValueError(f"{' and '.join(moved)} {verb} to the method: write {written_so}.")


def is_several(value: Any) -> bool:
    """Return whether there is a value for each rung, or for both ends."""
    import numpy as np

    return not isinstance(value, str) and np.ndim(value) > 0
