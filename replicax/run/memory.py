"""Memory of this process and of its devices."""

import sys

import jax


def memory_in_use() -> int:
    """Return the bytes in use: of the accelerators if there are any, else of this process."""
    on_devices = _device_bytes("bytes_in_use")
    if on_devices:
        return on_devices
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * _page_size()
    except OSError:  # not Linux
        return peak_memory()


def peak_memory() -> int:
    """Return the most bytes that were in use, as `memory_in_use` counts them."""
    on_devices = _device_bytes("peak_bytes_in_use")
    if on_devices:
        return on_devices
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def format_bytes(count: float) -> str:
    """Return a size in words.

    >>> format_bytes(3.2 * 2**30)
    '3.2 GiB'
    """
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _device_bytes(entry: str) -> int:
    return sum((device.memory_stats() or {}).get(entry, 0) for device in jax.local_devices())


def _page_size() -> int:
    import resource

    return resource.getpagesize()
