"""The benchmark of residual networks counts right and runs; how fast is not judged here."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import resnet as bench
from resnet import Case, Result, Roofline, Setup
from resnet_floor import Layer, num_parameters

TINY = Setup("cnn", replicas=2, batch_size=4, steps=2, dtype="f32", side=8, num_classes=10)


def test_operations_of_a_tiny_network_by_hand():
    layers = [Layer(3, 3, 2, 4, 4, is_first=True), Layer(1, 2, 5, 4, 2)]
    setup = replace(TINY, replicas=7, batch_size=11)
    products = 4 * 4 * 9 * 3 * 2 + 2 * 2 * 1 * 2 * 5 + 5 * 10
    roofline = Roofline.of(layers, setup, bandwidth=1e9, peak=2e9)
    assert roofline.flops == 6 * products * 7 * 11
    assert roofline.flops_ms == pytest.approx(roofline.flops / 2e9 * 1e3)


def test_bytes_of_a_tiny_network_by_hand():
    first = Layer(3, 3, 2, 4, 4, is_first=True)  # 48 numbers in, 32 out
    last = Layer(3, 2, 2, 4, 2, activate=False, ends_block=True, starts_block=True)  # 32 in, 8 out
    of_first = (48 + 32) + 32 + 64 + 64 + 96 + 64 + 96 + (48 + 32)
    of_last = (32 + 8) + 8 + 16 + 16 + 24 + 2 * (32 + 8) + 24 + 16 + 24 + 3 * 32
    assert (first.traffic, last.traffic) == (of_first, of_last)
    parameters = 9 * 3 * 2 + 4 + 9 * 2 * 2 + 4 + 3 * 10
    assert num_parameters([first, last], num_classes=10) == parameters
    roofline = Roofline.of([first, last], replace(TINY, dtype="bf16"), bandwidth=1e9, peak=1e30)
    pooled = 2 * 2 * 2 * 2
    numbers = (of_first + of_last + pooled) * 2 * 4
    assert roofline.bytes == 2 * numbers + 20 * 2 * parameters
    assert roofline.floor_ms == pytest.approx(roofline.bytes / 1e6)


@pytest.mark.parametrize("depth", [8, 20, 56])
def test_the_plan_has_the_parameters_and_operations_of_the_network(depth):
    import jax

    network = Setup(f"resnet{depth}", 1, 2, 1, "f32").network
    params, state = jax.eval_shape(network.init, jax.random.key(0))
    layers = bench.layers_of(depth)
    counted = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert num_parameters(layers, 100) == counted
    images = jax.ShapeDtypeStruct((2, 32, 32, 3), "float32")
    apply = jax.jit(network.apply, static_argnums=3)
    traced = apply.trace(params, state, images, True).jaxpr
    products = sum(products_of(eqn) for eqn in equations(traced.jaxpr)) / 2
    assert products == sum(layer.products for layer in layers)


def equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def products_of(eqn):
    if eqn.primitive.name != "conv_general_dilated":
        return 0
    height, width, num_in, _ = eqn.invars[1].aval.shape
    return eqn.outvars[0].aval.size * height * width * num_in


def test_the_floor_of_ten_resnet20_is_near_that_of_the_architecture():
    setup = Setup("resnet20", 10, 256, 1, "bf16")
    roofline = Roofline.of(bench.layers_of(20), setup, bandwidth=4.8e12, peak=990e12)
    assert 0.08 < bench.epoch_seconds(roofline.floor_ms, setup) < 0.13
    assert roofline.bytes_ms > roofline.flops_ms


def test_seconds_per_epoch_count_the_last_batch_whole():
    setup = Setup("resnet20", 10, 256, 1)
    assert bench.epoch_seconds(11.0, setup) == pytest.approx(11.0 * 196 / 10 / 1000)


def test_ratios_are_taken_round_by_round():
    ours, other = Result("ours", ms=[1.0, 2.0, 4.0]), Result("vmap", ms=[3.0, 6.0, 4.0])
    np.testing.assert_allclose(bench.ratios(other, ours), [3.0, 3.0, 1.0])
    cells = dict(zip(bench.HEADS[:5], bench.cells_of([ours, other], TINY)[1]))
    assert (cells["ms/step"], cells["x ours"]) == ("4", "3.00")


def test_rows_take_turns_and_a_failing_one_says_why():
    order = []

    def broken(setup):
        raise RuntimeError("no memory left\nlong trace")

    rows = {
        "a": lambda setup: Case(lambda: order.append("a")),
        "b": broken,
        "c": lambda setup: Case(lambda: order.append("c")),
    }
    saved = []
    results = bench.measure(rows, TINY, rounds=2, save=lambda rows: saved.append(len(rows)))
    assert "".join(order) == "aaa" + "ccc" + "ac" + "ca"  # two to warm up, one alone, two rounds
    assert [len(one.ms) for one in results] == [2, 0, 2]
    assert results[1].note == "RuntimeError: no memory left"
    assert saved == [1, 3, 3, 3]


def test_plain_convolutions_are_swapped_in_and_out():
    from jax import lax

    from replicax.nn import conv, network

    with pytest.raises(KeyError), bench.plain_convolutions():
        assert network.conv is lax.conv_general_dilated
        raise KeyError
    assert network.conv is conv


@pytest.mark.slow
def test_all_layouts_train_alike():
    losses = [bench.JAX_ROWS[name](TINY).run() for name in bench.JAX_ROWS]
    losses.append(bench.JAX_ROWS["vmap"](replace(TINY, scan=True)).run())
    np.testing.assert_allclose(losses, losses[0], rtol=1e-4)


def run_main(tmp_path, *arguments):
    found = tmp_path / "found.json"
    small = ("--replicas", "2", "--batch-size", "2", "--steps", "2", "--rounds", "3")
    bench.main([*small, *arguments, "--json", str(found)])
    return json.loads(found.read_text())


def test_it_runs_without_torch(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "resnet_torch", raising=False)
    ours, loop = run_main(tmp_path, "--cpu-cnn", "--only", "ours", "torch-loop")["rows"]
    assert len(ours["ms"]) == 3 and ours["compile_seconds"] > 0 and np.isfinite(ours["loss"])
    assert loop["note"] == "torch is not installed: left out." and loop["ms"] == []
    assert "s/epoch/replica" in capsys.readouterr().out


@pytest.mark.slow
def test_a_residual_network_is_held_against_the_floor(tmp_path, capsys):
    content = run_main(tmp_path, "--model", "resnet8", "--only", "ours")
    counted = content["rows"][0]["cost"]["flops"]
    assert counted == pytest.approx(content["roofline"]["flops"], rel=0.2)
    assert "of the floor's speed" in capsys.readouterr().out


def test_wrong_models_are_told():
    with pytest.raises(ValueError, match="write resnet20"):
        bench.depth_of("vgg")
