"""A trained network, and the exact posterior of its last layer."""

# %% [markdown]
# # A trained network, and the exact posterior of its last layer
#
# A notebook as a script: open it in VS Code, PyCharm or Jupyter (with jupytext), or run it:
# `python examples/last_layer.py`. It takes less than a minute on a CPU and needs scikit-learn.
#
# Not everybody can train ten networks. Here one small network has learned the digits 0 to 7. Its
# trunk stays as it is, and its last layer, 264 numbers, becomes a posterior, which `rx.sample`
# draws exactly. Digits 8 and 9, which the network has never seen, should look uncertain.

# %%
import jax
import numpy as np
from sklearn.datasets import load_digits

import replicax as rx

inputs, labels = load_digits(return_X_y=True)
inputs = (inputs / 16).astype(np.float32)
seen = labels < 8
order = np.random.default_rng(0).permutation(np.flatnonzero(seen))
train = inputs[order[:300]], labels[order[:300]]
test = inputs[order[300:]], labels[order[300:]]
strange = inputs[~seen]

# %% [markdown]
# ## The network
#
# Any trained network will do: of Flax or Equinox by `rx.interop`, of PyTorch by its features. This
# one is trained here.

# %%
network = rx.nn.mlp(64, 8, hidden=(64, 32))
problem = rx.classification(network, train, test=test, batch_size=50, weight_decay=1e-4)
method = rx.deep_ensemble(0.05)
trained = rx.train(problem, network.init, epochs=60, num_replicas=1, method=method, seed=0)
pretrained = jax.tree.map(lambda leaf: leaf[0], trained.networks.params), {}

# %% [markdown]
# ## The last layer
#
# One call computes the features of all rows once, finds the mode, and the scale of the prior for
# which the evidence is largest. `rx.sample` then draws from the posterior.

# %%
head = rx.last_layer(network, train, pretrained, test=test)
posterior = rx.sample(head, num_steps=1_500, burn_in=600, num_chains=2, seed=0)
print(posterior.problems())
print(f"prior N(0, {head.prior_sd:.2f}^2)")

# %% [markdown]
# ## Is it better?
#
# On the test, and in telling strange digits from those of the training by the entropy of their
# predictions (the area under the ROC curve).


# %%
def scores(metrics, inside, outside):
    entropies = rx.predict.entropy(inside), rx.predict.entropy(outside)
    return {"nll": metrics.nll, "calibration error": metrics.calibration_error,
            "auroc": rx.predict.auroc(*entropies)}  # fmt: skip


found = {"network": scores(trained.metrics(), *map(trained.predict, (test[0], strange)))}
for name, params in (("mode", head.best), ("posterior", posterior)):
    predicted = (head.predictions(params, some) for some in (test[0], strange))
    found[name] = scores(head.metrics(params), *predicted)
for name, numbers in found.items():
    print(f"{name:10}", {key: round(value, 3) for key, value in numbers.items()})

# %% [markdown]
# ## Or train heads
#
# `rx.freeze` is for everything else: the parameters that are named move, by any method, and the
# others stay. Here a deep ensemble of five new heads on the one trunk.

# %%
heads, start = rx.freeze(network, pretrained, "layers.2")
problem = rx.classification(heads, train, test=test, batch_size=50, weight_decay=1e-4)
ensemble = rx.train(problem, heads.init, epochs=20, num_replicas=5, method=method, seed=0)
found["five heads"] = scores(ensemble.metrics(), *map(ensemble.predict, (test[0], strange)))
print("five heads", {key: round(value, 3) for key, value in found["five heads"].items()})
