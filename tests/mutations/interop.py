"""Mutations of `replicax/interop/`: NumPyro, BlackJAX and ArviZ."""

from mutations import mutations_of

_NUMPYRO = "interop/test_numpyro.py"
_DENSITY = f"{_NUMPYRO}::test_the_density_is_that_of_numpyro"
_BATCHES = f"{_NUMPYRO}::test_mini_batches_scale_the_likelihood_and_not_the_prior"
_BLACKJAX = "interop/test_blackjax.py"
_ARVIZ = "interop/test_arviz.py"

NUMPYRO = mutations_of(
    "interop/numpyro_model.py",
    ("scale = scale * size / self.num_rows", "scale = scale", f"{_BATCHES}[plate]"),
    (
        "total = total + jnp.sum(value) / self.num_rows",
        "total = total + jnp.sum(value)",
        f"{_DENSITY}[factor]",
    ),
    (
        "total = total + jnp.sum(transform.log_abs_det_jacobian(moved, site",
        "total = total - jnp.sum(transform.log_abs_det_jacobian(moved, site",
        f"{_DENSITY}[arguments]",
    ),
    (
        "return None if any(value is seen for seen",
        "return value if any(value is seen for seen",
        f"{_NUMPYRO}::test_predictions_have_the_predictive_law",
    ),
    (
        'if name in self.latent or site["type"] == "deterministic"',
        "if name in self.latent",
        f"{_NUMPYRO}::test_draws_are_constrained_under_their_names",
    ),
)

BLACKJAX = mutations_of(
    "interop/blackjax.py",
    (
        "energy = info.energy[before.rung_of[after.replica_at[0]]]",
        "energy = info.energy[0]",
        f"{_BLACKJAX}::test_blackjax_runs_the_exchange_and_finds_both_modes",
    ),
    (
        "return -at.energy / rung.temperature - at.prior",
        "return -at.energy - at.prior",
        f"{_BLACKJAX}::test_a_blackjax_kernel_has_the_law_of_every_rung",
    ),
)

ARVIZ = mutations_of(
    "interop/arviz.py",
    (
        "posterior.rung_of[:, steps]",
        "posterior.rung_of[:, : len(steps)]",
        f"{_ARVIZ}::test_statistics_are_those_of_the_run",
    ),
)

MUTATIONS = [*NUMPYRO, *BLACKJAX, *ARVIZ]
