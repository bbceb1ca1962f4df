"""`replicax train` without options: what it promises on the digits."""

import pytest

from replicax.networks.by_name import DEFAULTS, NamedProblem
from replicax.networks.train import train
from replicax.run.methods import deo_star, ensemble

USUAL = DEFAULTS["digits"]
METHOD = deo_star(**{name: USUAL[name] for name in ("learning_rate", "target_swap_rate")})
RUN = {name: USUAL[name] for name in ("num_replicas", "epochs", "burn_in")}
SETTINGS = {**RUN, "method": METHOD}


def problem():
    pytest.importorskip("sklearn")
    task = NamedProblem(USUAL["model"], "digits", batch_size=USUAL["batch_size"], augment=False)
    return task.problem()


def nll_alone(found, start, epochs, num_networks):
    """Mean NLL of networks that never met, at the rate of the coldest rung."""
    options = {"method": ensemble(USUAL["learning_rate"][0]), "progress": False}
    alone = train(found, start, epochs=epochs, num_replicas=num_networks, **options)
    return float(alone.epochs["nll"][-1].mean())


@pytest.mark.slow
def test_the_default_beats_networks_alone_at_equal_steps():
    found, start = problem()
    trained = train(found, start, **SETTINGS, seed=0, progress=False)
    average, networks = trained.metrics(), trained.epochs["nll"][USUAL["burn_in"] :, 0]
    assert average.accuracy >= 0.96
    assert average.nll < 0.95 * networks.mean()  # of the coldest rung, while they were averaged
    assert average.nll < 0.95 * nll_alone(found, start, USUAL["epochs"], num_networks=4)
    assert trained.round_trips.sum() >= 5 and not trained.restarts[0]


@pytest.mark.slow
def test_a_short_run_beats_networks_alone_at_equal_steps():
    """A tenth of the default: 12 epochs."""
    found, start = problem()
    shorter = SETTINGS | {"epochs": 12, "burn_in": 6}
    trained = train(found, start, **shorter, seed=0, progress=False)
    average = trained.metrics()
    assert average.accuracy >= 0.96
    assert average.nll < trained.epochs["nll"][6:, 0].mean()
    assert average.nll < nll_alone(found, start, 12, num_networks=3)
    assert trained.window_swap_rate.sum() > 0
