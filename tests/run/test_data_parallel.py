"""Devices that share each replica and the rows of its mini-batches: numbers, traffic, bad input."""

import re

import jax
import jax.numpy as jnp
import layout_cases
import layouts
import numpy as np
import pytest
from common import slow
from crossings import read
from tiny_networks import NETWORK, tiny_problem

import replicax as rx
from replicax.run.devices import choose_mesh, chosen_sizes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("layouts")


# Gradients of the largest array of parameters, of the replicas that are together.
GRADIENTS = {"normalised": 2 * np.prod(layout_cases.NORMALISED), "network": 144, "regression": 6}


@pytest.mark.parametrize(
    ("case", "layout"),
    [
        ("normalised", "rows"),
        slow("normalised", "rows4"),
        slow("network", "rows"),
        slow("network", "rows4"),
        slow("regression", "rows"),
        slow("regression", "rows4"),
    ],
)
def test_shared_rows_give_the_numbers_of_one_device_to_rounding(folder, case, layout):
    """Sums over a mini-batch are taken in another order, and mean what they did: a layer that is
    normalised over the mini-batch sees all of its rows. Between devices cross energies, gradients
    and such means; no rows and no activations, which are more numbers than the gradients."""
    one, other = layouts.run_layouts(folder, case, "1", layout)
    np.testing.assert_array_equal(one["rung_of.0"], other["rung_of.0"])
    assert np.isfinite(one["energies.0"]).all() and np.ptp(one["draws.0"][..., 0]) > 0
    for name in (name for name in one if name.startswith(("draws", "energies"))):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-5, err_msg=name)

    crossed = read(folder / f"{case}-{layout}.json")
    at_every_step = [one for one in crossed if one.in_loop and not one.in_branch]
    operations = {one.operation for one in at_every_step}
    assert operations <= {"all-reduce", "collective-permute"}, at_every_step
    largest = GRADIENTS[case] * (2 if layout == "rows4" and case != "network" else 1)
    assert max(one.size for one in at_every_step) == largest, at_every_step


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["rows", "rows4"])
def test_the_same_layout_gives_the_same_bits_interrupted_or_not(folder, layout):
    runs = [layouts.run_layouts(folder, case, layout)[0] for case in ("network", "network")]
    runs += layouts.run_layouts(folder, "killed", layout)
    for name in runs[0]:
        for other in runs[1:]:
            np.testing.assert_array_equal(runs[0][name], other[name], err_msg=name)


@pytest.mark.slow
def test_processes_that_share_replicas_give_the_bits_of_one(folder):
    (one,) = layouts.run_layouts(folder, "network", "rows")
    for process in layouts.launch(folder, "network", layout="rows"):
        for name in one:
            np.testing.assert_array_equal(one[name], process[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["rows", "rows4"])
def test_shared_rows_have_the_law_of_the_posterior(folder, layout):
    (found,) = layouts.run_layouts(folder, "law", layout)
    rows, draws = layout_cases.regression_rows(), found["draws.0"].reshape(-1, 3)
    variance = 1 / (len(rows) + 1)
    np.testing.assert_allclose(draws.mean(axis=0), rows.sum(axis=0) * variance, atol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.2)


@pytest.fixture
def eight(monkeypatch):
    """Eight devices of one process."""
    monkeypatch.setattr(jax, "devices", lambda: [jax.local_devices()[0]] * 8)


@pytest.mark.parametrize(
    ("chains", "replicas", "devices", "shared", "sizes"),
    [
        (1, 4, 8, 2, (1, 4, 2)),
        (1, 8, 8, 1, (1, 8, 1)),
        (2, 2, "all", 2, (2, 2, 2)),
        (1, 4, None, 8, (1, 1, 8)),
        (1, 6, 6, 3, (1, 2, 3)),
    ],
)
def test_devices_are_shared_out(eight, chains, replicas, devices, shared, sizes):
    assert chosen_sizes(chains, replicas, devices, shared) == sizes


@pytest.mark.parametrize(
    ("devices", "shared", "message"),
    [
        (8, 3, "data_parallel is 3, which does not divide the 8 devices"),
        (8, 0, "data_parallel is 0; it must be a whole number of at least 1"),
        (8, 2.0, "data_parallel is 2.0; it must be a whole number"),
        (8, 1, "several devices share each replica of a run on mini-batches (data_parallel)"),
    ],
)
def test_a_number_that_cannot_be_is_refused(eight, devices, shared, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        choose_mesh(1, 3, devices, shared)


def test_axes_of_a_mesh_may_have_any_order():
    device = jax.local_devices()[0]
    mesh = jax.sharding.Mesh(np.array([device]).reshape(1, 1), ("data", "replica"))
    chosen = choose_mesh(1, 4, mesh)
    assert chosen is not None and chosen.axis_names == ("chain", "replica")  # one shares nothing
    with pytest.raises(ValueError, match="leave data_parallel out"):
        choose_mesh(1, 4, mesh, 2)


def test_batches_that_cannot_be_shared_are_refused(eight):
    with pytest.raises(ValueError, match="the energy has no batches whose rows they could share"):
        rx.sample(jnp.sum, jnp.zeros(2), num_steps=4, num_replicas=4, data_parallel=2)
    problem = tiny_problem(batch_size=9)
    with pytest.raises(
        ValueError, match=r"2 devices .* batches have \[9\] rows, .* a multiple of 2"
    ):
        rx.train(problem, NETWORK.init, epochs=1, num_replicas=4, data_parallel=2)
    with pytest.raises(ValueError, match=r"batches have \[3\] rows"):
        rx.sample(
            lambda x, batch: jnp.sum((x - batch) ** 2),
            jnp.zeros(2),
            batches=lambda step: np.ones((3, 2)),
            method=rx.deo_star(learning_rate=0.1),
            num_steps=4,
            num_replicas=4,
            data_parallel=2,
        )
