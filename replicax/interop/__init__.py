"""Conversions from and to other libraries, one file per library; each library is optional."""

from replicax.interop.arviz import to_arviz
from replicax.interop.blackjax import from_blackjax
from replicax.interop.equinox import from_equinox
from replicax.interop.flax import from_flax
from replicax.interop.numpyro import from_numpyro
