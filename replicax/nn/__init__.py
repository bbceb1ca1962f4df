"""Networks that stay fast under `jax.vmap` over replicas."""

from replicax.nn.conv import conv as conv
from replicax.nn.network import Network as Network
from replicax.nn.replicas import vmap as vmap
from replicax.nn.resnet import resnet as resnet
from replicax.nn.resnet import wide_resnet as wide_resnet
from replicax.nn.small import mlp as mlp
from replicax.nn.small import small_cnn as small_cnn
