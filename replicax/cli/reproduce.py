"""The command `replicax reproduce`: where the paper's studies are."""

from typing import Annotated

import typer


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="STUDY...", show_default=False)
    ] = None,
) -> None:
    """Tell where the paper's studies are: in the repository, not in the installed package."""
    command = " ".join(["python -m studies", *(names or ())])
    raise ValueError(
        "The paper's studies are in the folder studies of replicax's repository, which the "
        f"installed package does not contain: in a checkout or the source archive, run `{command}`."
    )
