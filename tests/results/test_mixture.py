"""Where the components of a learned mixture lie, and what was spent, in numbers and figures."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.results import done, mixture
from replicax.results.problems import _missed_by_mixture as missed_by_mixture
from replicax.results.report import Picture, sections_of
from replicax.results.summary import Table

STEPS, BURN_IN, CHAINS, REPLICAS, JUMPS = 420, 240, 2, 4, 64


def energy(params):
    """Two pairs of numbers, one near (-4, 0), the other near (4, 1); and a wide third."""
    x, y = params["x"], params["y"]
    orders = jnp.stack([jnp.stack([x, y], 1), jnp.stack([x, y], 1)[::-1]])
    apart = orders - jnp.array([[-4.0, 0.0], [4.0, 1.0]])
    parts = -jnp.sum(apart**2, axis=(1, 2)) / (2 * 0.5**2)
    return -jax.nn.logsumexp(parts) + params["z"] ** 2 / 200


@pytest.fixture(scope="module")
def run():
    return rx.sample(
        rx.Target(energy, exchangeable={"x": 0, "y": 0}),
        lambda key: {"x": 4 * jax.random.normal(key, (2,)), "y": jnp.zeros(2), "z": jnp.zeros(())},
        num_steps=STEPS,
        burn_in=BURN_IN,
        num_chains=CHAINS,
        num_replicas=REPLICAS,
        method=rx.posterior(jumps=JUMPS),
        progress=False,
    )


def test_components_lie_where_the_draws_are_their_labels_in_order(run) -> None:
    learned = mixture.of_run(run)
    assert learned.names == ["x[0]", "x[1]", "y[0]", "y[1]", "z"]
    assert learned.weight.sum() == pytest.approx(1) and learned.share.sum() == pytest.approx(1)
    assert np.all(np.diff(learned.weight) <= 0)
    np.testing.assert_allclose(learned.weight, learned.share, atol=0.12)
    first = learned.draws[:, 0] < learned.draws[:, 1]
    assert first.mean() in (0, 1) and np.all(np.abs(learned.draws[:, :2]) > 1)
    middle = learned.weight @ learned.mean
    np.testing.assert_allclose(middle, learned.draws.mean(axis=0), atol=1.0)


def test_the_telling_parameters_are_those_in_which_components_differ() -> None:
    mean = np.array([[0.0, -3.0, 0.1, 1.0], [0.0, 3.0, 0.0, -50.0]])
    cov = np.stack([np.diag([1.0, 1.0, 1.0, 40.0**2])] * 2)
    learned = mixture.Learned(list("abcd"), np.full(2, 0.5), mean, cov, np.full(2, 0.5), mean)
    assert mixture.telling(learned) == [1, 3]
    (one, other), pair = mixture.outlines(learned, [1, 3]), [1, 3]
    for at, centre in ((one, mean[0]), (other, mean[1])):
        apart = (at - centre[pair]) / np.array([1.0, 40.0])
        np.testing.assert_allclose(np.linalg.norm(apart, axis=1), 2)
    assert {at.shape[1] for at in mixture.outlines(learned, [1])} == {2}


def test_what_was_spent_is_counted(run) -> None:
    spent, taken = run.jumps["evaluations"], STEPS - run.jumps["spared"]
    assert spent["ladder"] == taken * CHAINS * REPLICAS * 8, "of eight leapfrog steps"
    # The search found a mixture before the first step.
    assert spent["jumps"] == taken * CHAINS * JUMPS
    assert spent["renewals"] % 400 == 0 and min(spent.values()) > 0
    assert f"jumps {spent['jumps']:,}" in str(run.summary())


def test_summary_figure_and_page_show_the_components(run) -> None:
    summary, learned = run.summary(), mixture.of_run(run)
    assert [row["weight"] for row in summary["jumps"]["mixture"]] == learned.weight.tolist()
    assert "share of the draws" in str(summary)
    axes = run.plot()["mixture"].axes[0]
    draws, *outlines = axes.lines
    assert len(draws.get_xdata()) == len(learned.draws) and len(outlines) == len(learned.weight)
    names = [learned.names[i] for i in mixture.telling(learned)]
    assert [axes.get_xlabel(), axes.get_ylabel()] == names
    sections = {section.title: section.parts for section in sections_of(run)}
    picture, table = sections["Mixture"]
    assert isinstance(picture, Picture) and isinstance(table, Table)
    assert len(picture.figure.axes[0].lines) == 1 + len(learned.weight) == 1 + len(table.rows)
    picture, table = sections["Is it done?"]
    assert isinstance(picture, Picture) and isinstance(table, Table)
    titles = [axes.get_title(loc="left") for axes in picture.figure.axes]
    assert [title.partition(" (")[0] for title in titles] == [row[0] for row in table.rows]
    steps, course = done.course(run)
    assert steps[-1] == STEPS and [one.shown for one in course[-1]] == [
        row[1] for row in table.rows
    ]
    drawn = [axes.get_lines()[0].get_ydata()[-1] for axes in picture.figure.axes]
    assert drawn == [one.value for one in course[-1]]


def test_components_and_checks_are_those_of_constrained_parameters(run) -> None:
    target = SimpleNamespace(constrain=lambda params: {"size": jnp.exp(params["z"] / 20)})
    shown = rx.Posterior(run._records, run._like, target)
    learned = mixture.of_run(shown)
    assert learned.names == ["size"] and learned.mean.min() > 0 < learned.draws.min()
    np.testing.assert_allclose(learned.weight @ learned.mean, learned.draws.mean(axis=0), rtol=0.3)
    assert set(shown.judged()) == set(shown.judged_before_jumps()) == {"size"}
    words = str(shown.summary())
    assert "size" in words and "x[0]" not in words


def test_acceptance_is_the_mean_over_all_proposals() -> None:
    rng = np.random.default_rng(0)
    draws, proposals = 3 * rng.standard_normal((4, 50)), rng.standard_normal((4, 300))
    proposals[0, :20], draws[0, 0] = -np.inf, -np.inf
    found = mixture.acceptance_at(draws, proposals)
    with np.errstate(invalid="ignore"):
        ratio = np.exp(np.minimum(proposals.ravel() - draws[..., None], 0))
    ratio = np.where(np.isneginf(proposals.ravel()), 0, ratio)
    np.testing.assert_allclose(found, ratio.mean(axis=-1))


def stub(stays, jumps=64, draws=1000, acceptance=0.005, thin=1):
    """Return a run of two chains; the first has stays of these lengths where jumps of this
    acceptance lead away."""
    weights = np.zeros((2, draws, 2))
    begin = 0
    for length in stays:
        weights[0, begin : begin + length, 0] = -np.log(acceptance)
        begin += length + 1
    resolved = SimpleNamespace(thin=thin, draws_per_step=2, burn_in=200)
    return SimpleNamespace(
        jump_weights=weights,
        jumps={"proposals": jumps},
        metadata=SimpleNamespace(resolved=resolved),
        num_steps=600,
        run_dir=None,
        sweeps=None,
    )


def test_few_long_stays_at_missed_places_are_told_and_many_short_ones_are_not() -> None:
    long, short = mixture.missed(stub([200, 200])), mixture.missed(stub(200 * [2]))
    assert long.mass == short.mass == 0.2 and long.longest == 100 and short.longest == 1
    assert long.error == pytest.approx(0.2 / 2**0.5) and short.error == pytest.approx(
        0.2 / 200**0.5
    )
    assert missed_by_mixture(stub(200 * [2])) is None  # ± 1.4 %
    assert "± 2.0%" in (missed_by_mixture(stub(100 * [4])) or "")
    told = missed_by_mixture(stub([200, 200]))
    assert "20.0%" in told and "100 steps" in told and "± 14.1%" in told


def test_stays_in_one_chain_of_four_are_told() -> None:
    """A replica that comes again and again to a place of which other chains know nothing."""
    run = stub(40 * [4])
    alone = mixture.missed(run)
    run.jump_weights = np.concatenate([run.jump_weights, np.zeros_like(run.jump_weights)])
    error = mixture.missed(run).error
    assert error == pytest.approx(alone.mass / 2) and error > 2 * alone.error


def test_places_are_missed_if_no_proposal_of_a_step_is_expected_to_be_accepted() -> None:
    """One in 200: of 64 none, of 256 one."""
    assert mixture.missed(stub([300])).mass == 0.15
    assert mixture.missed(stub([300], jumps=256)).mass == 0.0
    assert mixture.missed(stub([300], acceptance=1 / 63)).mass == 0.0
    assert mixture.missed(stub([300], thin=10)).longest == 1500
    assert mixture.missed(SimpleNamespace(jump_weights=None, jumps=None)) is None


def test_errors_of_masses_are_those_of_visits_at_random() -> None:
    """Visits begin at random, and last for geometric times."""
    rng, found, errors = np.random.default_rng(0), [], []
    for _ in range(300):
        stays = rng.geometric(0.1, rng.poisson(15))
        one = mixture.missed(stub(stays))
        found.append(one.mass)
        errors.append(one.error)
    assert np.mean(np.square(errors)) == pytest.approx(np.var(found), rel=0.25)


def test_a_run_without_jumps_shows_none() -> None:
    run = rx.sample(lambda x: x**2 / 2, 0.0, num_steps=100, num_replicas=2, progress=False)
    assert mixture.of_run(run) is None and "mixture" not in run.plot()
    assert run.summary()["jumps"] is None
    assert "Mixture" not in [section.title for section in sections_of(run)]
