"""replicax on a target: the one call, and the paper's DEO⋆ on noisy energies."""

import time
from typing import Any

import numpy as np
from judge import judge
from numpy_loop import RATES, RUNGS, SWAP_RATE, WINDOW
from peer import CHAINS, PeerRun, rounded
from target import Target

import replicax as rx

_PILOT = 50_000  # steps that tell the time of one
_compiled: set[tuple[str, int]] = set()  # targets and steps of which this process has run one


class _Timed:
    """A callback that splits the processor time of a run into compiling and sampling."""

    def __init__(self) -> None:
        self.began, self.seen = time.process_time(), []

    def __call__(self, progress: rx.callbacks.Progress) -> None:  # the first chunk compiles
        self.seen.append((time.process_time(), progress.step))

    def split(self, num_steps: int) -> tuple[float, float]:
        """Return the seconds of all steps, and those of compiling."""
        ended = time.process_time()
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

    `options` are further ones of the call; with `num_replicas=None` it is the default. With
    `compiles_first` an earlier call of another seed compiles, and the seconds are all of this one.
    """
    options = {"num_replicas": target.num_replicas, **options}

    def run(seed: int) -> tuple[rx.Posterior, _Timed, float]:
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
        return posterior, timed, time.process_time() - timed.began

    program, earlier = (target.name, target.num_steps), 0.0
    if compiles_first and program not in _compiled:
        earlier = run(seed + 100)[2]
        _compiled.add(program)
    posterior, timed, whole = run(seed)
    if compiles_first:
        seconds, compiling = whole, max(earlier - whole, 0.0)
    else:
        seconds, compiling = timed.split(posterior.num_steps)
    burn_in = posterior.metadata.resolved.burn_in
    verdict = judge(target, posterior.draws, [str(line) for line in posterior.problems()])
    return {
        **verdict.to_json(),
        "seconds": seconds,
        "tuning_seconds": timed.until(burn_in) if compiles_first else 0.0,
        "compile_seconds": compiling,
        "iterations": CHAINS * posterior.num_steps,
        "num_steps": posterior.num_steps,
        "num_replicas": posterior.num_replicas,
        "round_trips": posterior.round_trips.tolist(),
        "hottest": float(np.max(posterior.temperatures)),
        "swap_rates": np.round(posterior.window_swap_rate.mean(0), 3).tolist(),
        "result": posterior.result.code,
    }


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
    verdict = judge(target, run.draws, run.warnings).to_json()
    return {**verdict, **times, "iterations": run.iterations, "note": run.note}
