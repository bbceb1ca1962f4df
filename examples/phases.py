"""A delay from phases that wrap: many narrow modes in a plane, and a period.

The model of issue 643 of NumPyro, where a million draws of NUTS did not converge: the phases of a
signal at 24 frequencies, seen as noisy cosines and sines. Run it: `python examples/phases.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx

NOISE = 0.5**0.5
frequency = jnp.linspace(121e6, 168e6, 24)
slope = -8.4479745e6 / frequency


def waves(delay, constant):
    phase = delay * slope + constant
    return jnp.concatenate([jnp.cos(phase), jnp.sin(phase)])


observed = waves(55.0, 1.0) + 0.5 * jax.random.normal(jax.random.key(0), (48,))


def log_likelihood(values, rows):
    expected = waves(values["delay"], values["constant"])[rows["place"]]
    return -0.5 * ((rows["seen"] - expected) / NOISE) ** 2 - jnp.log(NOISE * (2 * jnp.pi) ** 0.5)


posterior = rx.bayesian(
    log_likelihood,
    {"delay": rx.priors.uniform(-100.0, 100.0), "constant": rx.priors.angle(-jnp.pi)},
    {"seen": observed, "place": jnp.arange(48)},
)


def evidence_on_a_grid(count: int = 4000) -> float:
    """Return the log evidence by the rectangle rule, which is exact for a smooth periodic angle."""
    angles = jnp.linspace(-jnp.pi, jnp.pi, 400, endpoint=False)
    rows = {"seen": observed, "place": jnp.arange(48)}

    def over_angles(delay):
        sums = jax.vmap(
            lambda angle: log_likelihood({"delay": delay, "constant": angle}, rows).sum()
        )
        return jax.nn.logsumexp(sums(angles)) - np.log(len(angles))

    delays = jnp.linspace(-100, 100, count)
    return float(jax.nn.logsumexp(jax.lax.map(over_angles, delays)) - np.log(count))


if __name__ == "__main__":
    run = rx.sample(posterior)
    print(run.summary())
    print(f"log evidence: {run.log_evidence()}, on a grid {evidence_on_a_grid():.3f}")
