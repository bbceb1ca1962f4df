"""What callbacks were shown of a run, kept so that others can be shown the same."""

import jax
from stopped_runs import run

import replicax as rx

LONG = dict(num_steps=3000, burn_in=500, chunk_steps=50, learning_rate=(0.2, 0.4))


def record(**options) -> tuple[rx.Posterior, list[rx.callbacks.Progress]]:
    """Run, and return what a callback saw; arrays are copied, as the loop writes over its own."""
    seen: list[rx.callbacks.Progress] = []

    def keep(progress: rx.callbacks.Progress) -> None:
        seen.append(progress._replace(carry=jax.device_get(progress.carry)))

    return run(**LONG | options, callback=keep), seen
