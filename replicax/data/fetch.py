"""Where files of data sets are kept, and how they get there."""

import os
from pathlib import Path


def default_folder() -> Path:
    """Where data sets are kept: what REPLICAX_DATA says, else ~/.cache/replicax."""
    return Path(os.environ.get("REPLICAX_DATA") or "~/.cache/replicax").expanduser()


def download(url: str, checksum: str, folder: Path) -> None:
    """Fetch a file into a folder; it stays there only if its checksum is right."""
    file = url.rpartition("/")[2]
    try:
        import pooch
    except ImportError:
        raise ValueError(
            f"Downloading needs pooch: run `pip install replicax[data]`, or put {url} into "
            f"{folder} yourself."
        ) from None
    try:
        pooch.retrieve(url, checksum, fname=file, path=folder)
    # Failures of the network are OSErrors, a wrong checksum is a ValueError.
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{url} could not be downloaded ({error}). Try again later, or put it into {folder} "
            "yourself."
        ) from error
