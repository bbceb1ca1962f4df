"""Sweeps over all rows: what they find, what they confirm, and how they go on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import rng_of
from scipy import stats
from scipy.special import expit, logsumexp

import replicax as rx
from replicax.algorithm.mixture import make_mixture
from replicax.run import sweep, sweep_state, sweeps
from replicax.run.options import Sampling, Session
from replicax.run.storage.folder import open_records

pytestmark = pytest.mark.filterwarnings("ignore:The commit of step")
ROWS, SD, TILT = 20_000, 0.7, 0.9
MEANS = 0.55, -0.55
MASS = expit(TILT * (MEANS[0] - MEANS[1]))  # of the labelling in which the first mean is larger


def log_likelihood(means, rows):
    """Rows of one of two components, of which nobody knows the label."""
    both = -0.5 * ((rows[:, None] - means) / SD) ** 2
    return jax.nn.logsumexp(both, axis=1) - jnp.log(2 * SD * np.sqrt(2 * np.pi))


def log_prior(means):
    """The two labellings have different masses."""
    return -0.5 * jnp.sum(means**2) + 0.5 * TILT * (means[0] - means[1])


def data() -> np.ndarray:
    rng = rng_of(3)
    means = np.where(rng.random(ROWS) < 0.5, *MEANS)
    return np.sort(means + SD * rng.normal(size=ROWS)).astype(np.float32)  # a sorted file


def start(key):
    return 2 * jax.random.normal(key, (2,))


def target() -> rx.run.bayesian.Bayesian:
    return rx.bayesian(log_likelihood, log_prior, data())


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> rx.Posterior:
    folder = tmp_path_factory.mktemp("sweeps") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return rx.sample(
            target(), start, method="sweeps", num_steps=5, run_dir=folder, keep_checkpoints=99
        )


def exact() -> tuple[float, np.ndarray, np.ndarray]:
    """Log evidence, and mean and sd of the posterior of the larger labelling, on a grid."""
    y, sizes = data().astype(float), []
    at = np.linspace(-0.05, 0.05, 25)
    first, second = np.meshgrid(MEANS[0] + at, MEANS[1] + at, indexing="ij")
    points = np.stack([first.ravel(), second.ravel()], axis=1)
    for a, b in points:
        both = np.logaddexp(*(-0.5 * ((y - m) / SD) ** 2 for m in (a, b)))
        value = np.sum(both) - ROWS * np.log(2 * SD * np.sqrt(2 * np.pi))
        sizes.append(value - 0.5 * (a**2 + b**2) + 0.5 * TILT * (a - b))
    log = np.array(sizes)
    weight = np.exp(log - logsumexp(log))
    mean = weight @ points
    sd = np.sqrt(weight @ (points - mean) ** 2)
    return logsumexp(log) + 2 * np.log(at[1] - at[0]) - np.log(MASS), mean, sd


def test_both_modes_are_found_with_their_masses_moments_and_evidence(run) -> None:
    larger = run.draws[..., 0] > run.draws[..., 1]
    assert abs(larger.mean() - MASS) < 0.05
    evidence, mean, sd = exact()
    draws = run.draws[larger]
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.15 * sd.max())
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.1)
    value, error = run.log_evidence()
    assert 0 < error < 0.1
    assert abs(value - evidence) < 4 * error + 0.05


def test_the_run_says_what_it_took(run) -> None:
    spent = run.sweeps
    assert spent["rows"] == ROWS and spent["finder_rows"] == 3000
    assert spent["kept"] == 5 and spent["minima"] >= 1 and spent["learning"] >= 1
    assert run.num_steps == sum(spent[name] for name in ("minima", "learning", "kept"))
    assert run.num_draws == 5 * 128 and run.num_chains == 4
    assert run.options["decided"].startswith("sweeps over all rows")
    text, plain = str(run.summary()), json.loads(json.dumps(run.summary()))
    assert "rows/s" in text and plain["sweeps"]["kept"] == 5
    assert max(spent["excess"]) < 0
    assert min(row["effective_size"] for row in plain["parameters"].values()) > 800
    assert run.problems() == []


def test_a_folder_opens_and_a_copy_of_it_is_the_same(run, tmp_path) -> None:
    for folder in (run.run_dir, run.save(tmp_path / "copy")):
        loaded = rx.load(folder, target())
        np.testing.assert_array_equal(loaded.draws, run.draws)
        np.testing.assert_array_equal(loaded.energies, run.energies)
        assert loaded.sweeps == run.sweeps
    assert run.report(tmp_path / "page.html").stat().st_size > 1000


def cut(run: rx.Posterior, folder, step: int) -> None:
    """A copy of the folder as it was when the process died in the next sweep."""
    shutil.copytree(run.run_dir, folder)
    records = open_records(folder)
    for path in (folder / "commits").glob("*"):
        if int(path.stem) > step:
            path.unlink()
    assert open_records(folder, with_checkpoint=True).commit.step == step
    del records


@pytest.mark.parametrize("step", [0, 2, 5])
def test_a_run_that_was_killed_goes_on_bit_for_bit(run, tmp_path, step) -> None:
    cut(run, tmp_path / "run", step)
    again = rx.resume(tmp_path / "run", target())
    np.testing.assert_array_equal(again.draws, run.draws)
    np.testing.assert_array_equal(again.energies, run.energies)
    np.testing.assert_array_equal(again.jump_weights, run.jump_weights)
    assert again.sweeps["excess"] == run.sweeps["excess"]


class Stopping:
    """The rows as a source, which sends Ctrl-C in the middle of a sweep."""

    def __init__(self, after: int | None) -> None:
        self.after, self.count = after, 0

    def __iter__(self):
        for block in np.array_split(data(), 7):
            self.count += 1
            if self.count == self.after:
                os.kill(os.getpid(), signal.SIGINT)
            yield block


def sampler_of(run: rx.Posterior, rows=None, **changes) -> sweep.Sampler:
    """What is fixed of a run, with other rows."""
    task = target() if rows is None else rx.bayesian(log_likelihood, log_prior, rows)
    metadata = run.metadata
    like = jax.ShapeDtypeStruct((2,), jnp.float32)
    finder = sweeps._finder(task, metadata.run, like)
    return sweep.Sampler(task, finder, like, metadata.run, metadata.method, **changes)


def state_at(run: rx.Posterior, folder, step: int) -> sweep_state.State:
    cut(run, folder, step)
    return sweep_state.restored(open_records(folder).final)


def test_draws_are_the_same_wherever_the_rows_are(run, tmp_path) -> None:
    state = state_at(run, tmp_path / "run", run.num_steps - 1)
    np.save(tmp_path / "rows.npy", data())
    places = [None, np.load(tmp_path / "rows.npy", mmap_mode="r"), Stopping(None)]
    draws = [sampler_of(run, rows).advance(state, lambda _: None)[1]["draws"] for rows in places]
    for place in draws:
        np.testing.assert_array_equal(place["params.params"], draws[0]["params.params"])
        np.testing.assert_array_equal(place["energy"], draws[0]["energy"])
    np.testing.assert_array_equal(
        np.moveaxis(draws[0]["params.params"][:, :, 0], 0, 1), run.draws[:, -128:]
    )


def test_partitions_of_dask_give_the_same_draws(run, tmp_path) -> None:
    dask = pytest.importorskip("dask")
    arrays = pytest.importorskip("dask.array")
    state = state_at(run, tmp_path / "run", run.num_steps - 1)
    rows = arrays.from_array(data(), chunks=4096)
    with dask.config.set(scheduler="threads"):
        draws = sampler_of(run, rows).advance(state, lambda _: None)[1]["draws"]
    kept = np.moveaxis(draws["params.params"][:, :, 0], 0, 1)
    np.testing.assert_array_equal(kept, run.draws[:, -128:])


def test_a_sweep_that_is_interrupted_is_done_again(run, tmp_path) -> None:
    source = Stopping(None)
    posterior = rx.bayesian(log_likelihood, log_prior, source)
    sampler = sampler_of(run, source)
    state = state_at(run, tmp_path / "run", run.num_steps - 3)
    from replicax.run.records import Records

    records = Records()
    records.write_metadata(run.metadata)
    source.after = source.count + 12  # in the second of the three sweeps
    sweeps._go_on(sampler, state, None, records, Session(progress=False))
    assert records.metadata.result.code == "interrupted"
    standing = records.standing
    assert int(standing.state.step) == run.num_steps - 2
    source.after = None
    sweeps._go_on(sampler, standing.state, None, records, Session(progress=False))
    assert records.metadata.result.code == "finished"
    kept = np.moveaxis(records.read("draws", "params.params")[:, :, 0], 0, 1)
    np.testing.assert_array_equal(kept, run.draws[:, -3 * 128 :])
    assert posterior.num_rows == ROWS


def test_a_mode_that_was_withheld_is_told_and_learned_before_the_first_kept_sweep(
    run, tmp_path
) -> None:
    state = state_at(run, tmp_path / "run", 0)
    sampler = sampler_of(run, withheld=0)
    while int(state.phase) != sweep_state.CONFIRMING:
        state, rows = sampler.advance(state, lambda _: None)
    assert state.excess[0] > 10, "draws of the finder weigh more than all proposals"
    assert state.excess[-1] < 0
    draws = []
    for _ in range(4):
        state, rows = sampler.advance(state, lambda _: None)
        draws.append(rows["draws"]["params.params"][:, :, 0])
    larger = np.concatenate(draws)[..., 0] > np.concatenate(draws)[..., 1]
    assert abs(larger.mean() - MASS) < 0.07


def test_a_mode_that_the_mixture_misses_while_draws_are_kept_is_told(run, tmp_path) -> None:
    state = state_at(run, tmp_path / "run", run.num_steps - 1)
    mean = np.array([MEANS])
    root = np.linalg.cholesky(state.laplace)[None]
    state = state._replace(mixture=make_mixture(np.zeros(1), mean, root))
    state, _ = sampler_of(run).advance(state, lambda _: None)
    assert state.excess[-1] > 10
    final = dict(run._records.final)
    told = rx.Posterior(run._records, run._like, run._target)
    told._records.final = final | {"sweeps.excess": state.excess}
    try:
        assert "weighs more than" in " ".join(told.problems())
    finally:
        told._records.final = final


# The law: what a sweep does preserves the posterior, whatever the mixture is.

EXACT_ROWS = np.array([0.3, -0.4, 1.1, 0.2], np.float32)


def normal_likelihood(mean, rows):
    return -0.5 * (rows - mean) ** 2


def normal_prior(mean):
    return -0.5 * mean**2


@pytest.mark.parametrize(
    ("mean", "sd"), [(0.24, 0.5), (0.9, 0.45), (0.24, 0.1)], ids=["good", "one side", "narrow"]
)
@pytest.mark.parametrize("inverted", [False, True])
def test_sweeps_leave_the_posterior_invariant(mean, sd, inverted, monkeypatch) -> None:
    chains, n = 6_000, 4
    if inverted:  # lighter proposals are preferred
        decide = sweep.decide
        opposite = lambda own, weights, *rest: decide(-own, -weights, *rest)  # noqa: E731
        monkeypatch.setattr(sweep, "decide", opposite)
    posterior_mean, posterior_sd = EXACT_ROWS.sum() / 5, 5**-0.5
    task = rx.bayesian(normal_likelihood, normal_prior, EXACT_ROWS)
    like = jax.ShapeDtypeStruct((), jnp.float32)
    options = Sampling(num_steps=1, num_chains=chains, seed=0)
    sampler = sweep.Sampler(
        task, sweeps._finder(task, options, like), like, options, rx.sweeps(jumps=n)
    )
    at = (posterior_mean + posterior_sd * rng_of(5).normal(size=(chains, 1))).astype(np.float32)
    state = sweep_state.template()._replace(
        step=np.array(1),
        phase=np.array(sweep_state.CONFIRMING),
        burn_in=np.array(1),
        centre=np.zeros(1),
        at_centre=np.zeros(2),
        excess=np.zeros(0),
        mixture=make_mixture(np.zeros(1), np.array([[mean]]), np.array([[[sd]]])),
        spent=sweep_state.Spent(np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(3)),
    )
    state = state._replace(finder=state.finder._replace(draws=at.astype(float)))
    u = 0.5 * np.sum((EXACT_ROWS - at.astype(float)) ** 2, axis=1) - 0.5 * np.sum(EXACT_ROWS**2)
    energy = np.stack([u, u + 0.5 * at[:, 0].astype(float) ** 2], axis=1)
    none = np.zeros(chains)
    weight = sampler._weights(state, at.astype(float), energy[:, 1])
    state = state._replace(chains=sweep_state.Chains(at.astype(float), energy, weight, *[none] * 6))
    moved = []
    for _ in range(2):
        state, rows = sampler.advance(state, lambda _: None)
        draws = rows["draws"]["params.params"][:, :, 0]
        moved.append((np.diff(draws, axis=0) != 0).mean())
        for position in (0, n - 1):
            z = (draws[position] - posterior_mean) / posterior_sd
            if not inverted:
                assert stats.kstest(z, "norm").pvalue > 1e-3
    assert np.mean(moved) > 0.05
    if inverted:
        assert stats.kstest(z, "norm").pvalue < 1e-6


# Which runs are sweeps.


def choice(task=None, method="posterior", **given) -> sweeps.Choice:
    return sweeps.choose(target() if task is None else task, method, start, given)


def of_rows(count: int) -> rx.run.bayesian.Bayesian:
    return rx.bayesian(log_likelihood, log_prior, np.zeros(count, np.float32))


def test_all_rows_are_swept_where_they_are_dear_for_a_ladder() -> None:
    assert not choice(of_rows(2_000)).sweeps
    assert not choice(of_rows(10_000)).sweeps
    assert (
        choice(of_rows(100_000)).sweeps and "evaluations of a row" in choice(of_rows(100_000)).words
    )
    ladder, swept = sweeps.costs(15, 10**6)
    assert ladder > 50 * swept


def test_what_the_user_gives_decides() -> None:
    many = of_rows(100_000)
    assert choice(of_rows(2_000), "sweeps").sweeps
    assert not choice(many, rx.posterior(jumps=64)).sweeps
    assert "num_steps is given" in choice(many, num_steps=1000).words
    batches = rx.bayesian(log_likelihood, log_prior, data(), batch_size=100)
    assert choice(batches).words == "sweeps over all rows, 100 of them at a time"
    assert not choice(batches, rx.deo(1e-3)).sweeps
    with pytest.raises(ValueError, match="num_steps is 6,000.*count the sweeps.*or batch_size"):
        choice(batches, num_steps=6_000)
    assert choice(batches, num_steps=64).sweeps and choice(batches, "sweeps", num_steps=65).sweeps
    with pytest.raises(ValueError, match="num_replicas is given.*or batch_size for a ladder"):
        choice(batches, num_replicas=8)
    source = rx.bayesian(log_likelihood, log_prior, Stopping(None))
    assert choice(source).sweeps
    with pytest.raises(ValueError, match="only sweeps reach"):
        choice(source, rx.posterior(jumps=64))
    with pytest.raises(ValueError, match="burn_in is given, which only a ladder has"):
        choice(source, burn_in=10)
    with pytest.raises(ValueError, match="go over rows"):
        sweeps.choose(rx.run.task.as_task(lambda x: x**2), "sweeps", start, {})


def test_rows_that_are_not_finite_and_that_the_finder_did_not_see_are_told(run, tmp_path) -> None:
    broken = data()
    broken[1] = np.nan  # every sixth one is seen
    state = state_at(run, tmp_path / "run", 0)
    sampler = sampler_of(run, broken)
    with pytest.raises(ValueError, match="do the data hold NaN"):
        while True:
            state, _ = sampler.advance(state, lambda _: None)


def test_too_many_parameters_for_a_mixture_are_refused() -> None:
    task = rx.bayesian(lambda p, rows: -((rows - p.sum()) ** 2), lambda p: -(p**2).sum(), data())
    with pytest.raises(ValueError, match="at most 300"):
        rx.sample(task, np.zeros(400, np.float32), method="sweeps")


def test_a_run_in_a_folder_goes_on_by_more_sweeps(run, tmp_path) -> None:
    shutil.copytree(run.run_dir, tmp_path / "run")
    more = rx.load(tmp_path / "run", target()).extend(2, progress=False)
    assert more.sweeps["kept"] == 7 and more.num_draws == 7 * 128
    np.testing.assert_array_equal(more.draws[:, : 5 * 128], run.draws)
    done = rx.resume(tmp_path / "run", target(), until_done=True)
    assert done.sweeps["kept"] == 7, "nothing is short"


SHARED = """
import jax, numpy as np
import replicax as rx
from replicax.run import rows

used, put = set(), jax.device_put
rows.jax.device_put = lambda x, device=None: used.add(device) or put(x, device)
y = np.random.default_rng(0).normal(1.0, 1.0, 70_000).astype("f")
target = rx.bayesian(lambda m, rows: -((rows - m) ** 2) / 2, lambda m: -(m**2) / 2, y)
draws = []
for devices in (None, jax.sharding.Mesh(np.array(jax.devices()), ("data",))):
    used.clear()
    run = rx.sample(target, 0.0, method="sweeps", num_steps=1, devices=devices, progress=False)
    draws.append(np.asarray(run.draws))
assert used == set(jax.devices()) and len(used) == 2, used
np.testing.assert_array_equal(*draws)
"""


def test_devices_share_the_blocks_of_a_sweep_and_change_nothing() -> None:
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SHARED], env=env,
                          capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


class Blocks:
    """A source whose blocks are those of its mini-batches."""

    def __iter__(self):
        return iter(np.split(data(), 200))


@pytest.mark.parametrize("batch_size", [100, 1])
def test_rows_in_blocks_are_swept_as_all_rows_are(run, batch_size) -> None:
    """Sums over other blocks differ in their last bits; the blocks are no larger than was said."""
    few = data()[:600] if batch_size == 1 else data()
    task = rx.bayesian(log_likelihood, log_prior, few, batch_size=batch_size)
    like = jax.ShapeDtypeStruct((2,), jnp.float32)
    finder = sweeps._finder(task, Sampling(num_steps=2), start)
    made = sweep.Sampler(task, finder, like, Sampling(num_steps=2), rx.sweeps())
    points = rng_of(0).normal(0, 0.1, (5, 2)).astype("f")
    for derivatives in (False, True):
        sums = made.sums(derivatives, points[0], points, lambda count: None)
        both = np.logaddexp(*(-0.5 * ((few - points.T[:, :, None]) / SD) ** 2)).sum(axis=1)
        np.testing.assert_allclose(sums.apart, both - both[0], rtol=1e-4, atol=1e-2)
    assert {plan.block_rows for plan in made._plans.values()} <= {96, 100, 64, 1}


def test_a_source_in_blocks_is_sampled_by_sweeps(run) -> None:
    task = rx.bayesian(log_likelihood, log_prior, Blocks(), batch_size=100, num_rows=ROWS)
    found = rx.sample(task, start, num_steps=4)
    assert found.options["decided"] == "sweeps over all rows, 100 of them at a time"
    larger = found.draws[..., 0] > found.draws[..., 1]
    assert abs(larger.mean() - MASS) < 0.05 and found.sweeps["kept"] == 4
    np.testing.assert_allclose(found.draws[larger].mean(axis=0), exact()[1], atol=0.005)
