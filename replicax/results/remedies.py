"""What a warning advises, in numbers: more draws, a new tuning, or more replicas."""

from typing import TYPE_CHECKING

import numpy as np

from replicax.run.bayesian import IN_MEMORY, Bayesian

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_ROOM = 1.1  # steps beyond those that the numbers so far ask for
_MOST_TIMES = 20.0  # as many draws: what asks for more needs another remedy
_REFUSED = 0.02  # acceptance of the proposals of sweeps below which more of them are in vain
_MORE = 1.5  # times the replicas that a ladder has which is too short


def longer(posterior: "Posterior", factor: float) -> str:
    """Return how the draws become `factor` times as many, in a sentence."""
    times = float(np.clip(np.nan_to_num(factor, nan=2.0), 1.2, _MOST_TIMES))
    if posterior.metadata.kind == "train":
        return f"Train {_ROOM * times:.2g} times as many epochs."
    kept = max(posterior.num_steps - posterior.metadata.resolved.burn_in, 1)
    more = kept * (_ROOM * times - 1)
    digits = 10 ** max(int(np.log10(more)) - 1, 0)
    return f"Write posterior.extend({int(np.ceil(more / digits - 1e-6)) * digits:_})."


def to_first_draws(posterior: "Posterior") -> str:
    """Return how a run that was stopped in its burn-in gets its draws, in a sentence."""
    resolved = posterior.metadata.resolved
    planned = max(resolved.num_steps, resolved.burn_in + 1)
    return f"Write posterior.extend({planned - posterior.num_steps:_})."


def retuning(posterior: "Posterior") -> str:
    """Return how a run is tuned anew, in a sentence; sweeps have learned from all rows already."""
    if posterior.sweeps is not None:
        return _or_ladder(posterior)
    folder = "" if posterior.run_dir is None else ", run_dir=..."
    burn_in = 2 * posterior.num_steps // 3
    return (
        f"Write posterior.extend(retune=True{folder}): from where the replicas are, with a burn-in "
        f"of {burn_in:,} steps where this run had {posterior.metadata.resolved.burn_in:,}."
    )


def is_refused(posterior: "Posterior") -> bool:
    """Return whether sweeps propose what hardly any chain takes."""
    jumps = posterior.jumps
    if posterior.sweeps is None or jumps is None or not posterior.num_draws:
        return False
    return float(np.mean(jumps["accepted"])) < _REFUSED


def _or_ladder(posterior: "Posterior") -> str:
    """Return what is exact where the mixture of sweeps is not enough, in a sentence."""
    batches = posterior.metadata.batches
    if batches.kind != IN_MEMORY:
        how = "with the rows as arrays, and num_steps=10_000"
    elif batches.batch_size != batches.num_rows:
        how = "without batch_size or a method, and with num_steps=10_000"
    else:
        how = "without a method, and with num_steps=10_000"
    more = "" if is_refused(posterior) else "with more proposals, method=rx.sweeps(jumps=512), or "
    return f"Start again {more}as a ladder over all rows: {how}."


def more_replicas(posterior: "Posterior") -> str:
    """Return how the ladder gets as many replicas as it lacks, in a sentence."""
    least = int(np.ceil(_MORE * posterior.num_replicas))
    wanted = max(least, posterior.replicas_advised or 0)
    return f"Write num_replicas={wanted} (this run has {posterior.num_replicas})."


def hotter(posterior: "Posterior") -> str:
    """Return how the hot end of the ladder gets more freedom, in a sentence."""
    method, temperature = posterior.metadata.method, float(posterior.temperatures[:, -1].max())
    if posterior.metadata.resolved.rule == "deterministic":
        rate = float(posterior.learning_rates[:, -1].max()) / posterior.energy_scale
        return f"Write a higher hot end of learning_rate in the method (now {rate:.3g})."
    if isinstance(method.temperature, str) or np.isinf(temperature):
        return more_replicas(posterior)
    higher = 3 * temperature * posterior.temperature_scale
    return f"Write a higher temperature in the method: (1, {higher:.3g}), now {higher / 3:.3g}."


def is_bayesian(posterior: "Posterior") -> bool:
    """Return whether prior and likelihood of the target are known apart already."""
    bayesian = isinstance(posterior._target, Bayesian)
    return bayesian or posterior.metadata.resolved.tempers_likelihood
