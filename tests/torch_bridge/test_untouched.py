"""AMP, channels_last, torch.compile and LR schedulers work with an exchange in the loop as without.

A loop with the exchange and one in which its learning rates are set by hand train the same
weights, bit for bit: nothing but the rates is touched. All on the CPU and, where there is one, on
a GPU.
"""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_bridge import loop  # noqa: E402
from torch_bridge.exchanges import watch  # noqa: E402
from torch_bridge.loop import BROKEN_STEP, NUM_REPLICAS, NUM_STEPS, OPTIONS, Use  # noqa: E402

import replicax as rx  # noqa: E402

HAS_GPU = torch.cuda.is_available()
NEEDS_GPU = pytest.mark.skipif(not HAS_GPU, reason="PyTorch sees no GPU here")
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_GPU)]
SCHEDULERS = torch.optim.lr_scheduler


def step_lr(optimizer):
    return SCHEDULERS.StepLR(optimizer, step_size=6, gamma=0.5)


USES = {
    "amp": Use(amp=True),
    "channels_last": Use(channels_last=True),
    "compiled": Use(backend="aot_eager"),
    "scheduled": Use(scheduler=step_lr),
    "all": Use(amp=True, channels_last=True, backend="aot_eager", scheduler=step_lr),
    "inductor": Use(amp=True, channels_last=True, backend="inductor", scheduler=step_lr),
}


def cases():
    for device in ("cpu", "cuda"):
        for name in USES:
            marks = [NEEDS_GPU] if device == "cuda" else []
            marks += [pytest.mark.slow] if (device, name) == ("cpu", "inductor") else []
            yield pytest.param(device, name, marks=marks, id=f"{device}-{name}")


def layout_of(models):
    """Where every parameter and buffer is, and how it lies there."""
    tensors = [value for model in models for value in model.state_dict().values()]
    return [(x.data_ptr(), x.shape, x.stride(), x.dtype, x.device) for x in tensors]


def copies_of(state):
    return {name: value.detach().clone() for name, value in state.items()}


@pytest.mark.parametrize(("device", "name"), list(cases()))
def test_a_loop_differs_by_its_learning_rates_alone(device, name) -> None:
    use = USES[name]
    counter = use.backend and CompileCounterWithBackend(use.backend)
    use = use._replace(backend=counter)
    parts, data = loop.make(device, use), loop.batches(device, use)
    told_floats = loop.make(device, Use()).exchange
    where, start = layout_of(parts.models), copies_of(parts.models[1].state_dict())
    losses, rates, scales, frames, seen = [], [], [], [], watch(parts.optimizers)
    for step, batch in enumerate(data):
        decided = told_floats.learning_rates[told_floats.rung_of] * parts.exchange.factor
        before = copies_of(parts.models[1].state_dict())
        told = loop.train_step(parts, use, batch, device, use.amp and step == BROKEN_STEP)
        rates.append([rows[-1][0] for rows in seen])
        if use.amp and step == BROKEN_STEP:
            after = parts.models[1].state_dict()
            assert torch.equal(after["0.weight"], before["0.weight"]), "the step was not skipped"
            rates[-1][1] = decided[1]
        np.testing.assert_allclose(rates[-1], decided, rtol=1e-6)
        parts.exchange.step(told)
        losses.append([loss.item() for loss in told])
        told_floats.step(losses[-1])
        scales.append(parts.scaler.get_scale())
        frames.append(counter.frame_count if counter else 0)
    assert layout_of(parts.models) == where
    np.testing.assert_array_equal(parts.exchange.index_paths, told_floats.index_paths)
    assert len(np.unique(parts.exchange.index_paths, axis=0)) > 3, "hardly a swap"
    assert np.mean(losses[-4:]) < 0.7 * np.mean(losses[:2]), "nothing was learnt"
    assert not torch.equal(start["0.weight"], parts.models[1].state_dict()["0.weight"])
    if use.amp:
        skipped, grown = scales[BROKEN_STEP] / scales[BROKEN_STEP - 1], max(scales) / scales[0]
        assert (skipped, grown) == (0.5, 2.0)
    if use.channels_last:
        weight = parts.models[0][0].weight
        assert weight.is_contiguous(memory_format=torch.channels_last)
        assert not weight.is_contiguous()
    if counter:
        assert frames[0] > 0 and frames[-1] == frames[0], "something was compiled again"
    if use.scheduler:
        assert parts.exchange.factor == pytest.approx(0.5 ** (NUM_STEPS // 6))

    bare = loop.make(device, use, exchanges=False)
    for step, batch in enumerate(data):
        loop.set_rates(bare.optimizers, rates[step])
        told = loop.train_step(bare, use, batch, device, use.amp and step == BROKEN_STEP)
        assert [loss.item() for loss in told] == losses[step]
    for one, other in zip(parts.models, bare.models):
        torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)
        grads = [[x.grad.stride() for x in model.parameters()] for model in (one, other)]
        assert grads[0] == grads[1]
    for one, other in zip(parts.optimizers, bare.optimizers):
        memory, expected = one.state_dict()["state"], other.state_dict()["state"]
        torch.testing.assert_close(memory, expected, rtol=0, atol=0)
    assert parts.scaler.state_dict() == bare.scaler.state_dict()


@pytest.mark.parametrize("device", DEVICES)
def test_a_loop_that_was_saved_goes_on_exactly(device, tmp_path) -> None:
    use = Use(amp=True, channels_last=True)
    data = loop.batches(device, use)
    whole = loop.make(device, use)
    for step, batch in enumerate(data):
        if step == NUM_STEPS // 2:
            torch.save(whole.state(), tmp_path / "last.pt")
        whole.exchange.step(loop.train_step(whole, use, batch, device, step == BROKEN_STEP))
    resumed = loop.make(device, use, seed=5)
    where = layout_of(resumed.models)
    resumed.load(torch.load(tmp_path / "last.pt", map_location=device))
    assert layout_of(resumed.models) == where
    for batch in data[NUM_STEPS // 2 :]:
        resumed.exchange.step(loop.train_step(resumed, use, batch, device, False))
    np.testing.assert_array_equal(resumed.exchange.index_paths, whole.exchange.index_paths)
    for one, other in zip(resumed.models, whole.models):
        torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)
    assert resumed.scaler.state_dict() == whole.scaler.state_dict()


def backends():
    for device, backend in (("cpu", "eager"), ("cpu", "aot_eager"), ("cpu", "inductor"),
                            ("cuda", "inductor")):  # fmt: skip
        slow = [pytest.mark.slow] if (device, backend) == ("cpu", "inductor") else []
        marks = [NEEDS_GPU] if device == "cuda" else slow
        yield pytest.param(device, backend, marks=marks, id=f"{device}-{backend}")


@pytest.mark.parametrize(("device", "backend"), list(backends()))
def test_a_compiled_optimizer_with_its_rate_in_a_tensor_is_not_compiled_again(device, backend):
    counter = CompileCounterWithBackend(backend)
    models = [torch.nn.Linear(2, 1).to(device) for _ in range(NUM_REPLICAS)]
    optimizers = [
        torch.optim.Adam(
            model.parameters(), lr=torch.tensor(0.1, device=device), capturable=device == "cuda"
        )
        for model in models
    ]
    exchange, seen = rx.torch.Exchange(optimizers, **OPTIONS), watch(optimizers)
    schedulers = [SCHEDULERS.LambdaLR(x, lambda step: 0.5**step) for x in optimizers]
    rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    steps = [torch.compile(optimizer.step, backend=counter) for optimizer in optimizers]
    told, frames = np.random.default_rng(0).normal(size=(12, NUM_REPLICAS)), []
    for number, row in enumerate(told):
        expected = exchange.learning_rates[exchange.rung_of] * 0.5**number
        for model, step in zip(models, steps):
            model(torch.ones(4, 2, device=device)).mean().backward()
            step()
        np.testing.assert_allclose([rows[-1][0] for rows in seen], expected, rtol=1e-6)
        for scheduler in schedulers:
            scheduler.step()
        exchange.step(torch.tensor(row, device=device))
        frames.append(counter.frame_count)
    assert all(x.param_groups[0]["lr"] is rate for x, rate in zip(optimizers, rates))
    assert len(np.unique(exchange.index_paths, axis=0)) > 2, "hardly a swap"
    assert frames[1] > 0 and frames[-1] == frames[1], "something was compiled again"


class Copies(TorchDispatchMode):
    """Counts the operations that bring values to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.scalars, self.arrays = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        self.scalars += name in ("_local_scalar_dense", "item")
        self.arrays += name == "_to_copy" and torch.device(kwargs.get("device") or "cuda") == CPU
        return func(*args, **kwargs)


CPU = torch.device("cpu")


class Elsewhere(torch.Tensor):
    """A tensor of the CPU that says it is not."""

    is_cpu = False  # type: ignore[assignment]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rates", ["floats", "tensors"])
def test_losses_come_to_the_host_in_one_copy(device, rates) -> None:
    params = [torch.zeros(1, device=device, requires_grad=True) for _ in range(NUM_REPLICAS)]
    lr = 0.1 if rates == "floats" else torch.tensor(0.1, device=device)
    optimizers = [torch.optim.Adam([x], lr=lr, capturable=device == "cuda") for x in params]
    if rates == "tensors":
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = lr.clone()
    exchange = rx.torch.Exchange(optimizers, **OPTIONS)
    losses = [torch.tensor(x, device=device).as_subclass(Elsewhere) for x in (3.0, 2.0, 1.0)]
    exchange.step(losses)
    num_steps = 5
    with Copies() as copies:
        for _ in range(num_steps):
            exchange.step(losses)
    assert copies.scalars == 0
    assert copies.arrays == (num_steps if device == "cuda" else 0)
    if device == "cuda":
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(num_steps):
                exchange.step(losses)
            torch.cuda.synchronize()
        names = [event.name for event in profile.events()]
        assert sum("DtoH" in name for name in names) == num_steps, names


MEMORY = """
import jax
import torch
torch.zeros(1, device="cuda")
optimizers = [torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1) for _ in range(3)]
before = torch.cuda.mem_get_info()[0]
import replicax as rx
exchange = rx.torch.Exchange(optimizers, (0.1, 0.2))
for _ in range(3):
    exchange.step([3.0, 2.0, 1.0])
assert jax.live_arrays("gpu") == [], jax.live_arrays("gpu")
print((before - torch.cuda.mem_get_info()[0]) / 2**20)
"""


@NEEDS_GPU
def test_decisions_leave_the_memory_of_the_gpu_alone() -> None:
    """JAX takes three quarters of a GPU in advance where nobody tells it not to."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 1024, "MiB"
