"""What tests share: property tests try the same examples everywhere, programs are compiled once.

Many tests run the same compiled loop again: JAX keeps programs of this session in a folder of its
own, for all workers and for the processes that tests start. Set JAX_COMPILATION_CACHE_DIR to keep
them from one session to the next.
"""

import gc
import os
import signal
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import settings

if version("jaxlib").startswith("0.10."):  # later ones do not know the flag
    # XLA's older emitters of kernels: programs compile in a third of the time and run as fast.
    # JAX reads the flag when it is imported first, here and in the processes that tests start.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"--xla_cpu_use_fusion_emitters=false {flags}"

import jax

settings.register_profile("replicax", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("replicax")

TESTS = Path(__file__).parent
# Here runs are long enough that quick programs matter more than quick compilation.
LONG_RUNS = {
    TESTS / "cli/test_demo.py",
    TESTS / "run/test_bayesian.py",
    TESTS / "test_examples.py",
    *[
        TESTS / f"laws/test_{name}.py"
        for name in ("chains", "judgement", "kernels", "memory", "modes25")
    ],
    *[
        TESTS / f"studies/test_{name}.py"
        for name in ("index_process", "kernels", "mixture", "replicas", "round_trips", "toy")
    ],
}


def set_option(name: str, value: bool | float | str) -> None:
    """Set an option of JAX here and in the processes that are started from here."""
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Shells start background jobs deaf to Ctrl-C; children would be so, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "REPLICAX_STATE" not in os.environ:  # not the home of whoever runs the tests
        state = tempfile.TemporaryDirectory(prefix="replicax-state-", ignore_cleanup_errors=True)
        config.add_cleanup(state.cleanup)
        os.environ["REPLICAX_STATE"] = state.name
    if jax.config.jax_compilation_cache_dir is None:
        folder = tempfile.TemporaryDirectory(prefix="replicax-jax-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        set_option("jax_compilation_cache_dir", folder.name)
        set_option("jax_persistent_cache_min_compile_time_secs", 0.05)


def pytest_collection_finish() -> None:
    """Collect garbage rarely, and not among what imports left: tracing makes many objects that
    live, and looking through all of them took an eighth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Compile in half the time, except where runs are long."""
    quick = item.path not in LONG_RUNS and not item.path.is_relative_to(TESTS.parent / "studies")
    set_option("jax_disable_most_optimizations", quick)
