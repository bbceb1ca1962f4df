"""Mutations of `replicax/results/`: what a posterior says of its best point and its rates."""

from mutations import mutations_of

_BEST = "results/test_posterior.py::test_the_best_draw_is_the_lowest_finite_one"

POSTERIOR = mutations_of(
    "results/posterior.py",
    (
        "energies = np.where(np.isfinite(energies), energies, np.inf)",
        "energies = np.where(np.isnan(energies), -np.inf, energies)",
        _BEST,
    ),
    ("np.argmin(energies, axis=1)", "np.argmax(energies, axis=1)", _BEST),
    ("chain = int(np.argmin(energies))", "chain = 0", _BEST),
    (
        'return self._final("window_swaps") / np.maximum(self.num_windows, 1)',
        'return self._final("window_swaps") / self.counted_steps',
        "algorithm/test_step.py::test_a_sampled_chain_equals_the_oracle",
    ),
)

MUTATIONS = [*POSTERIOR]
