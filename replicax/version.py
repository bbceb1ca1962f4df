"""The version of the package, alone so that it can be read without importing JAX."""

__version__ = "0.3.0"
