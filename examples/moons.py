"""Where does a network not know? Replica exchange over small networks."""

# %% [markdown]
# # Where does a network not know? Replica exchange over small networks
#
# A notebook as a script: open it in VS Code, PyCharm or Jupyter (with jupytext), or run it:
# `python examples/moons.py`. It takes about a minute on a CPU.
#
# Four copies of a small network train side by side, each with its own learning rate, and
# exchange their rates. The network on the coldest rung is averaged after every epoch.
# We look at its likelihood, its calibration, and at points far away from the data.

# %%
import numpy as np

import replicax as rx

rng = np.random.default_rng(0)


def two_moons(count):
    labels = rng.integers(0, 2, count)
    angle = rng.uniform(0, np.pi, count) + np.pi * labels
    moons = np.stack([np.cos(angle) + labels, np.sin(angle) + 0.5 * labels], axis=1)
    return (moons + rng.normal(0, 0.25, (count, 2))).astype(np.float32), labels


train, test = two_moons(256), two_moons(1_000)

# %% [markdown]
# ## Train
#
# The method's `learning_rate` has the rates of the coldest and the hottest rung; `burn_in` is the
# number of epochs before the average begins. `weight_decay` is the prior.

# %%
network = rx.nn.mlp(2, 2, hidden=(32, 32))
problem = rx.classification(network, train, test=test, batch_size=32, weight_decay=5e-4)
options = {"epochs": 60, "num_replicas": 4, "burn_in": 20, "seed": 0, "progress": False}
exchanged = rx.train(
    problem,
    network.init,
    method=rx.deo_star(learning_rate=(0.05, 0.4), target_swap_rate=0.1),
    **options,
)
print(exchanged)
print("round trips:", exchanged.round_trips, " problems:", exchanged.problems())

# %% [markdown]
# ## The average and its parts
#
# The likelihood of the average is never worse than the mean over its networks (Jensen); the
# difference shows how much they disagree. The plain ensemble has the same cost; compare both
# before you believe that exchange helps on your data.

# %%
ensemble = rx.train(problem, network.init, method=rx.ensemble(learning_rate=0.05), **options)
single = exchanged.epochs["nll"][20:, 0].mean()
print(f"networks of the coldest rung: NLL {single:.4f}")
for name, run in (("exchange", exchanged), ("ensemble", ensemble)):
    metrics = run.metrics()
    print(
        f"{name}: NLL {metrics.nll:.4f}, accuracy {metrics.accuracy:.3f}, "
        f"calibration error {metrics.calibration_error:.3f}"
    )

# %% [markdown]
# ## Points unlike the training data
#
# The entropy of the average splits into the uncertainty of the single networks (aleatoric) and
# the disagreement between them (epistemic).

# %%
doubt = {}
places = {
    "inside a moon": [[0.0, 1.0]],
    "between the moons": [[0.5, 0.25]],
    "far away": [[-3.0, -3.0]],
}
for place, point in places.items():
    members = exchanged.predict(np.array(point, np.float32), members=True)
    doubt[place] = parts = rx.predict.uncertainty(members, exchanged.networks.weight)
    print(f"{place:18} aleatoric {parts.aleatoric[0]:.3f}, epistemic {parts.epistemic[0]:.3f}")
