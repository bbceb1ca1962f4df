"""The command `replicax sample`."""

from typing import Annotated, Any

import typer

from replicax import user_code
from replicax.cli import flags, folders, output
from replicax.cli.output import finish
from replicax.errors import choose
from replicax.run.methods import METHODS, Method
from replicax.run.options import Limits, Sampling, Session
from replicax.user_code import TargetSpec

_DEFAULT = "posterior"
_REPLICAS = 16  # of the paper's method
_STEPS = 20_000  # of runs that do not know when they are done


@flags.of(TargetSpec, Sampling, Limits, Method, Session)
def sample(
    target: Annotated[
        str,
        typer.Argument(metavar="MODEL.PY:NAME", help="Target: an object in a file."),
    ],
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Method: posterior (exact draws), deo-star or deo (the paper's ladder of learning "
            "rates), ensemble or sgld.",
            show_default=_DEFAULT,
            rich_help_panel=flags.METHOD,
        ),
    ] = None,
    as_json: flags.Json = False,
    **given: Any,
) -> int:
    """Sample exp(-energy) for an energy that you write.

    NAME is a function energy(params, batch, key), of which the last two arguments are optional, an
    rx.bayesian posterior or an rx.Target. The same file defines params, the initial parameters
    (arrays, rx.per_replica(...) or a function of a key), and batches, if the energy needs data.

    \b
    Example: model.py
      import jax.numpy as jnp
      params = jnp.zeros(2)
      def energy(x):
          return jnp.sum((x**2 - 4) ** 2) / 8

    \b
    This energy is exact, so there is nothing else to choose. Without --steps the run goes on until
    it is done:
      replicax sample model.py:energy --chains 4

    \b
    With your own temperatures:
      replicax sample model.py:energy --chains 4 --temperature 1 2 4 8 --no-adapt

    \b
    A noisy energy, as with mini-batches, takes the paper's ladder of learning rates:
      replicax sample replicax.demo:target --chains 4 --method deo-star --learning-rate 0.003 0.6

    Exit codes: 0 finished; 2 wrong input; 3 an energy became non-finite (earlier draws are
    kept); 130 stopped with Ctrl-C, 143 with SIGTERM, 138 with SIGUSR1 (everything is saved;
    continue with `replicax resume RUN_DIR`).
    """
    import replicax as rx

    chosen = _method(method, flags.given(Method, given))
    run = flags.given(Sampling, given)
    if "num_replicas" not in run and not chosen.keeps_law and not _is_ladder(chosen):
        run["num_replicas"] = _REPLICAS
    output.join_processes()
    with output.quietly(as_json):
        spec = TargetSpec.from_command_line(target, **flags.given(TargetSpec, given))
        session = flags.given(Session, given)
        session["run_dir"] = folders.new_run_folder(session.get("run_dir"), spec.name)
        loaded = spec.load()
        user_code.remember(spec.to_note(), [spec.target])
        batches = {"batches": loaded.batches, "batch_size": loaded.batch_size}
        if not chosen.keeps_law:
            run.setdefault("num_steps", _STEPS)
        posterior = rx.sample(
            loaded.target,
            loaded.params,
            method=chosen,
            note=spec.to_note(),
            **batches,
            **session,
            **run,
            **flags.given(Limits, given),
        )
    return finish(posterior, as_json)


def _method(name: str | None, given: dict[str, Any]) -> Method:
    """Return the method of this name; raise if rates are given and the name is not, because they
    mean another algorithm to some."""
    if name is None and "learning_rate" in given:
        rates = given["learning_rate"]
        words = " ".join(f"{rate:g}" for rate in (rates if isinstance(rates, tuple) else [rates]))
        raise ValueError(
            f"--learning-rate is {words}, and no method is given: write --method deo-star "
            f"--learning-rate {words} for the paper's ladder of SGD rungs, or --method posterior "
            f"--learning-rate {words} for exact draws with these rates; without rates, --method "
            "posterior tunes them."
        )
    return METHODS[choose("--method", name or _DEFAULT, METHODS)](**given)


def _is_ladder(method: Method) -> bool:
    """Return whether there is one value per rung, so that the number of rungs is known."""
    values = (method.learning_rate, method.temperature)
    return any(isinstance(each, tuple) and len(each) > 2 for each in values)
