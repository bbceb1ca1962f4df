"""Networks that stay fast under `jax.vmap` over replicas."""

from replicax.nn.conv import conv as conv
from replicax.nn.network import Network as Network
from replicax.nn.networks import mlp as mlp
from replicax.nn.networks import resnet as resnet
from replicax.nn.networks import small_cnn as small_cnn
from replicax.nn.replicas import vmap as vmap
