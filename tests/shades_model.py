"""A file with networks and data, and options of a tiny training, for the command line."""

MODEL = """
import jax, jax.numpy as jnp
import numpy as np
import replicax as rx
from replicax.nn.network import apply_dense, init_dense

print("the model is imported")

def make(seed, size=6, classes=3):
    rng = np.random.default_rng(seed)
    def part(count):
        labels = rng.integers(0, classes, count).astype(np.int32)
        images = rng.normal(90 + 40 * labels[:, None, None, None], 60, (count, size, size, 1))
        return images.clip(0, 255).astype(np.uint8), labels
    return rx.data.Dataset("tiny", *part(32), *part(12), classes, (0.5,), (0.25,))

def shades():
    return make(0)

fixed = 3

def dense(dataset):
    size = dataset.train_images[0].size
    def init(key):
        return init_dense(key, size, dataset.num_classes), {}
    def apply(params, state, images, train):
        return apply_dense(params, images.reshape(len(images), -1)), state
    return rx.nn.Network(init, apply)

def fragile(dataset):
    network = dense(dataset)
    def apply(params, state, images, train):
        logits, state = network.apply(params, state, images, train)
        return jnp.where(jnp.max(jnp.abs(params["weight"])) > 3, jnp.nan, logits), state
    return rx.nn.Network(network.init, apply)
"""
NAMES = ["--model", "model.py:dense", "--data", "model.py:shades"]
TASK = [*NAMES, "--no-augment", "--batch-size", "8"]
TINY = [*TASK, "--epochs", "3", "--replicas", "3", "--no-progress"]
LADDER = ["--learning-rate", "0.02", "0.2", "--swap-rate", "0.3", "--window", "2"]
LADDER += ["--pretrain", "0", "--method", "deo-star"]
