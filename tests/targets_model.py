"""A file with targets, for the command line."""

MODEL = """
import jax.numpy as jnp
import numpy as np
import replicax as rx

print("the model is imported")
params = jnp.zeros(2)
elsewhere = {"w": jnp.ones(2)}
rows = np.linspace(-1.0, 1.0, 20)
fixed = 3

def energy(x):
    return jnp.sum((x**2 - 4) ** 2) / 8

def of_batch(x, batch):
    return jnp.sum((x - batch.mean()) ** 2)

def of_tree(tree):
    return jnp.sum(tree["w"] ** 2)

def far_away(x):
    return jnp.sum(jnp.where(jnp.abs(x) > 1, jnp.nan, -x**2 + 0.01 * x))

def broken(x):
    raise ValueError("It broke")

def scattered(key):
    import jax
    return jax.random.normal(key, (2,))

well = rx.Target(lambda x, batch, key: jnp.sum(x**2))
"""
