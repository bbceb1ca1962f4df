"""The folder of data sets, and downloads into it."""

import os
from pathlib import Path


def default_folder() -> Path:
    """Return the environment variable REPLICAX_DATA, or else ~/.cache/replicax."""
    return Path(os.environ.get("REPLICAX_DATA") or "~/.cache/replicax").expanduser()


def download(url: str, checksum: str, folder: Path) -> None:
    """Download the file at `url` into `folder`; it is kept only if its checksum is right."""
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
