"""Langevin noise in the gradients of PyTorch optimizers has the temperature of the cold rung."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import replicax as rx  # noqa: E402


def test_langevin_noise_has_the_temperature_of_the_coldest_rung() -> None:
    """At rest with U = x^2 / 2 the coldest rung has the variance of its temperature."""
    temperature, size = 0.3, 400
    params = [torch.zeros(size, requires_grad=True) for _ in range(2)]
    optimizers = [torch.optim.SGD([param], lr=0.1, momentum=0.5) for param in params]
    exchange = rx.torch.Exchange(
        optimizers, (0.02, 0.02), adapt=False, schedule="none", temperature=temperature
    )
    squares = []
    for step in range(600):
        for optimizer, param in zip(optimizers, params):
            param.grad = param.detach().clone()
            optimizer.step()
        exchange.step([0.0, 0.0])
        if step > 200:
            squares.append(float((params[0].detach() ** 2).mean()))
    assert np.mean(squares) == pytest.approx(temperature, rel=0.1)
    assert not params[1].any(), "the other rung has no noise"


def test_langevin_noise_resumes_exactly() -> None:
    def train(optimizers, exchange, num_steps):
        for _ in range(num_steps):
            for optimizer in optimizers:
                for param in optimizer.param_groups[0]["params"]:
                    param.grad = param.detach().clone()
                optimizer.step()
            exchange.step([1.0, 2.0])

    def start():
        params = [torch.zeros(3, requires_grad=True) for _ in range(2)]
        optimizers = [torch.optim.SGD([param], lr=0.1, momentum=0.9) for param in params]
        return params, optimizers, rx.torch.Exchange(optimizers, (0.01, 0.1), temperature=0.1)

    params, optimizers, exchange = start()
    train(optimizers, exchange, 5)
    others, other_optimizers, other = start()
    for old, new, param, copied in zip(optimizers, other_optimizers, params, others):
        copied.data = param.detach().clone()
        new.load_state_dict(copy.deepcopy(old.state_dict()))
    other.load_state_dict(exchange.state_dict())
    train(optimizers, exchange, 5)
    train(other_optimizers, other, 5)
    assert params[0].any()
    for param, copied in zip(params, others):
        torch.testing.assert_close(param, copied, rtol=0, atol=0)


def moved_by_noise(step, num_exchanges: int = 1, temperature: float = 0.1, **options):
    """Parameters at 0 after one step of zero gradients, replica by replica."""
    params = [torch.zeros(200, requires_grad=True) for _ in range(2)]
    optimizers = [torch.optim.SGD([param], lr=0.1, **options) for param in params]
    for earlier in range(num_exchanges - 1):
        rx.torch.Exchange(optimizers, (0.01, 0.1), temperature=0.1, seed=earlier + 1)
    rx.torch.Exchange(optimizers, (0.01, 0.1), temperature=temperature)
    for param, optimizer in zip(params, optimizers):
        step(param, optimizer)
    return [param.detach() for param in params]


def plain_step(param, optimizer) -> None:
    param.grad = torch.zeros_like(param)
    optimizer.step()


def closure_step(param, optimizer) -> None:
    def closure():
        optimizer.zero_grad()
        loss = (0 * param).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 0


def scaled_step(param, optimizer) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale((0 * param).sum()).backward()
    scaler.step(optimizer)


@pytest.mark.parametrize("step", [closure_step, scaled_step])
@pytest.mark.parametrize("fused", [False, True])
def test_a_closure_and_scaled_gradients_get_the_same_noise(step, fused) -> None:
    """A closure computes gradients after the step began; a fused step takes them scaled."""
    expected, moved = moved_by_noise(plain_step, fused=fused), moved_by_noise(step, fused=fused)
    assert expected[0].std() == pytest.approx(np.sqrt(2 * 0.1 * 0.01), rel=0.2)
    torch.testing.assert_close(moved, expected, rtol=1e-6, atol=0)
    assert not moved[1].any(), "the other rung has no noise"


def test_noise_is_that_of_the_last_exchange_of_an_optimizer() -> None:
    expected = moved_by_noise(plain_step)
    torch.testing.assert_close(moved_by_noise(plain_step, 3), expected, rtol=0, atol=0)
    assert not moved_by_noise(plain_step, 2, temperature=0.0)[0].any()
