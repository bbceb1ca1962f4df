"""The images that a classification learns from are augmented, with a key of their own."""

import jax
import jax.numpy as jnp
import numpy as np
from tiny_networks import NETWORK, tiny_data, tiny_problem

from replicax.data import augmentation
from replicax.networks.classification import classification


def test_augmentation_is_on_and_follows_its_key() -> None:
    data = tiny_data()
    augmented, plain = classification(NETWORK, data, batch_size=8), tiny_problem()
    batch = jnp.asarray(data.train_images[:8]), jnp.asarray(data.train_labels[:8])
    one, again, other = (augmented.batches.prepare(jax.random.key(k), batch) for k in (1, 1, 2))
    wanted = augmentation(data.mean, data.std)(jax.random.key(1), batch[0])
    np.testing.assert_array_equal(one[0], wanted)
    np.testing.assert_array_equal(one[0], again[0])
    assert not np.array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], batch[1])
    unchanged = (data.train_images[:8] / 255.0 - 0.5) / 0.25
    for key in (1, 2):
        images, _ = plain.batches.prepare(jax.random.key(key), batch)
        np.testing.assert_allclose(images, unchanged, atol=1e-5)
