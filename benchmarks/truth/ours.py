"""replicax on a target: the one call, and the paper's DEO⋆ on noisy energies."""

import time
from typing import Any

import judge
import numpy as np
from numpy_loop import RATES, RUNGS, SWAP_RATE, WINDOW
from peer import CHAINS, PeerRun, rounded
from target import Target

import replicax as rx
from replicax.run.compiled_once import seconds_compiling

_PILOT = 50_000  # steps that tell the time of one
_compiled: set[tuple[str, int | None]] = (
    set()
)  # targets and steps of which this process has run one


def _clock() -> float:
    """Return the processor time of this process without that of tracing and compiling."""
    return time.process_time() - seconds_compiling()


class _Timed:
    """A callback that notes the processor time of the steps of a run."""

    def __init__(self) -> None:
        self.began, self.seen = _clock(), []

    def __call__(self, progress: rx.callbacks.Progress) -> None:  # the first chunk compiles
        self.seen.append((_clock(), progress.step))

    def split(self, num_steps: int) -> tuple[float, float]:
        """Return the seconds of all steps, and what the first ones took beyond that."""
        ended = _clock()
        first, step = self.seen[0]
        left = num_steps - step
        whole = ended - self.began
        seconds = (ended - first) * num_steps / left if left > 0 else whole
        return seconds, max(whole - seconds, 0.0)

    def until(self, step: int) -> float:
        """Return the seconds until a step."""
        seconds, steps = zip(*self.seen)
        return float(np.interp(step, steps, seconds)) - self.began


def run_replicax(
    target: Target, seed: int, compiles_first: bool = False, **options: Any
) -> dict[str, Any]:
    """Return the verdict on one call of `rx.sample`, with processor seconds and the ladder.

    `options` are further ones of the call; with `num_replicas=None` it is the default, as where the
    run decides itself how long it is. Its seconds are
    without tracing and compiling; with `compiles_first` an earlier call of another seed does what
    else a process does once.
    """
    num_replicas = None if target.num_steps is None else target.num_replicas
    options = {"num_replicas": num_replicas, **options}

    def run(seed: int) -> tuple[rx.Posterior, _Timed]:
        timed = _Timed()
        posterior = rx.sample(
            target.for_replicax,
            target.start,
            num_steps=target.num_steps,
            num_chains=CHAINS,
            seed=seed,
            callback=timed,
            progress=False,
            **options,
        )
        return posterior, timed

    program, compiled_before = (target.name, target.num_steps), seconds_compiling()
    if compiles_first and program not in _compiled:
        run(seed + 100)
        _compiled.add(program)
    posterior, timed = run(seed)
    seconds, compiling = _clock() - timed.began, seconds_compiling() - compiled_before
    if posterior.num_draws == 0:
        return {"error": "no draws: " + "; ".join(map(str, posterior.problems()))}
    burn_in = posterior.metadata.resolved.burn_in
    verdict = judge.judge(target, posterior.draws, [str(line) for line in posterior.problems()])
    return {
        **verdict.to_json(),
        "seconds": seconds,
        "tuning_seconds": timed.until(burn_in),
        "compile_seconds": compiling,
        "iterations": CHAINS * posterior.num_steps,
        "num_steps": posterior.num_steps,
        "batch_size": target.batch_size,
        "num_replicas": posterior.num_replicas,
        "round_trips": posterior.round_trips.tolist(),
        "hottest": float(np.max(posterior.temperatures)),
        "swap_rates": np.round(posterior.window_swap_rate.mean(0), 3).tolist(),
        "result": posterior.result.code,
        **_evidence(target, _evidence_of(posterior)),
    }


def _evidence_of(posterior: rx.Posterior) -> tuple[float, float] | None:
    try:
        return posterior.log_evidence()
    except ValueError:  # prior and likelihood are not known apart
        return None


def _evidence(target: Target, found: tuple[float, float] | None) -> dict[str, Any]:
    """Return a log evidence with its standard error, and how far it is from the truth."""
    true = judge.reference(target.name).get("log_evidence")
    if found is None or true is None:
        return {}
    return {"log_evidence": list(found), "evidence_error": found[0] - true}


def deo_star(target: Target, seconds: float, seed: int = 0, **_: Any) -> PeerRun:
    """Run the paper's settings on energies and gradients with noise, for a processor time."""

    method = rx.deo_star(RATES, target_swap_rate=SWAP_RATE, window=WINDOW)

    def run(num_steps: int, seed: int) -> tuple[Any, float, float]:
        timed = _Timed()
        posterior = rx.sample(
            target.noisy, target.start, num_steps=num_steps, num_replicas=RUNGS,
            method=method, burn_in=100, thin=10,
            num_chains=CHAINS, seed=seed, callback=timed, progress=False,
        )  # fmt: skip
        return posterior, *timed.split(num_steps)

    _, pilot, _ = run(_PILOT, seed + 100)
    num_steps = rounded(seconds / pilot * _PILOT, 1_000, 10_000_000)
    posterior, spent, compiling = run(num_steps, seed)
    warned = tuple(str(line) for line in posterior.problems())
    return PeerRun(
        posterior.draws, warned, spent, compiling, CHAINS * num_steps, f"{num_steps} steps"
    )


def verdict_of(run: PeerRun, target: Target) -> dict[str, Any]:
    """Return what is stored of a run of another sampler."""
    times = {
        "seconds": run.seconds,
        "tuning_seconds": run.tuning_seconds,
        "compile_seconds": run.compile_seconds,
    }
    verdict = judge.judge(target, run.draws, run.warnings).to_json()
    evidence = _evidence(target, run.log_evidence)
    return {**verdict, **times, "iterations": run.iterations, "note": run.note, **evidence}
