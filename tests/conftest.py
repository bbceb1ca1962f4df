"""What tests share: property tests try the same examples everywhere, programs are compiled once.

Many tests run the same compiled loop again: JAX keeps programs of this session in a folder of its
own. Set JAX_COMPILATION_CACHE_DIR to keep them from one session to the next.
"""

import signal
import tempfile

import jax
import pytest
from hypothesis import settings

settings.register_profile("replicax", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("replicax")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Shells start background jobs deaf to Ctrl-C; children would be so, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if jax.config.jax_compilation_cache_dir is None:
        folder = tempfile.TemporaryDirectory(prefix="replicax-jax-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        jax.config.update("jax_compilation_cache_dir", folder.name)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
