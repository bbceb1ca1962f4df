"""Error messages of the command line, with the names of its options."""

import re
import traceback
from pathlib import Path
from typing import Any

import typer

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # of click, or of the copy in typer
_PACKAGE = Path(__file__).parents[1]
_MADE = re.compile(r"method=rx\.(\w+)\(((?:[^()]|\([^()]*\))*)\)")
_SHORT = {  # options of Python that have another name on the command line
    "num_steps": "steps",
    "num_replicas": "replicas",
    "num_chains": "chains",
    "target_swap_rate": "swap_rate",
    "energy_noise_std": "noise_std",
    "num_params": "params",
    "run_dir": "out",
}


def print_error(sentence: str) -> None:
    """Print one red line on stderr."""
    typer.secho(one_line(sentence), fg="red", err=True)


def one_line(text: str) -> str:
    return " ".join(text.split())


def describe_error(error: Exception) -> str:
    """Return an error as a sentence; for a wrong option or command, with its help page."""
    if isinstance(error, UsageError):
        usage_error: Any = error  # of a class that type checkers cannot see
        page = "replicax" if usage_error.ctx is None else usage_error.ctx.command_path
        return f"{_end(usage_error.format_message())} See `{page} --help`."
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"There is no file {error.filename}."
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename} cannot be used: {error.strerror.lower()}."
    sentence = str(error) or type(error).__name__
    if isinstance(error, ValueError) and not _is_ours(error):
        return f"{_end(sentence)} (`replicax --traceback ...` shows where.)"
    return sentence


def as_written(sentence: str, options: dict[str, str]) -> str:
    """Return a message in which Python names are replaced by those of the command line.

    Names that are also words are replaced only where a value follows, or where they begin.

    >>> as_written('window is 9; write schedule="deo".', {"window": "--window", "schedule": "-s"})
    '--window is 9; write -s deo.'
    >>> options = {"method": "--method", "learning_rate": "--learning-rate"}
    >>> as_written("write method=rx.deo_star(learning_rate=(cold, hot)) here", options)
    'write --method deo-star --learning-rate cold hot here'
    """
    sentence = _MADE.sub(_by_name, sentence)
    flags = {name: flag for name, flag in options.items() if flag.startswith("-")}
    flags |= {name: flags[short] for name, short in _SHORT.items() if short in flags}
    for name, flag in flags.items():
        alone = rf"(?<![\w.-]){name}"
        sentence = re.sub(
            rf"{alone}=\(?\"?([\w.+-]+(?:, [\w.+-]+)*)\"?\)?",
            lambda found, flag=flag: f"{flag} {found[1].replace(', ', ' ')}",
            sentence,
        )
        follows = r"(?=[\d('\"\[-]|nan\b|inf\b|None\b|a number\b)"
        sentence = re.sub(rf"{alone} is {follows}", f"{flag} is ", sentence)
        sentence = re.sub(
            rf"^{alone} (?=(?:must|holds|has|gives|are|differ)\b)", f"{flag} ", sentence
        )
        if "_" in name:
            sentence = re.sub(rf"{alone}(?![\w(])", flag, sentence)
    return sentence


def _by_name(found: re.Match) -> str:
    """Return a method that a function makes as its name, followed by its options."""
    name, options = found[1].replace("_", "-"), re.sub(r", (?=\w+=)", " ", found[2])
    return f'method="{name}" {options}'.strip()


def _is_ours(error: Exception) -> bool:
    """Return whether replicax raised the error, rather than the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and _PACKAGE in Path(frames[-1].filename).parents


def _end(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
