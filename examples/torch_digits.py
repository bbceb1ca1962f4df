"""Four small convolutional networks on digits, in PyTorch on a CPU, with replica exchange.

    pip install "replicax[torch,data]"
    python examples/torch_digits.py [EPOCHS]

Networks on hot rungs explore, and what they find comes down to the cold rung by swaps. After the
first half, the network on the cold rung joins the average at the end of every epoch.
"""

import copy
import sys

import torch
from torch import nn

import replicax as rx

NUM_REPLICAS, BATCH_SIZE = 4, 64


def make_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def load_digits() -> tuple[torch.utils.data.TensorDataset, torch.utils.data.TensorDataset]:
    data = rx.data.load("digits")
    parts = (
        (data.train_images, data.train_labels),
        (data.test_images, data.test_labels),
    )

    def as_tensors(images, labels) -> torch.utils.data.TensorDataset:
        pixels = torch.tensor(images).permute(0, 3, 1, 2).float() / 255
        return torch.utils.data.TensorDataset(pixels, torch.tensor(labels).long())

    train, test = (as_tensors(*part) for part in parts)
    return train, test


def train(epochs: int = 10, seed: int = 0) -> dict:
    """Train, and return the metrics of the last cold network and of the average."""
    torch.manual_seed(seed)
    train_data, test_data = load_digits()
    loader = torch.utils.data.DataLoader(train_data, BATCH_SIZE, shuffle=True, drop_last=True)
    test = torch.utils.data.DataLoader(test_data, 256)

    models = [make_network() for _ in range(NUM_REPLICAS)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    exchange = rx.torch.Exchange(optimizers, learning_rate=(0.005, 0.02), target_swap_rate=0.02)

    checkpoints = []
    for epoch in range(epochs):
        for images, labels in loader:
            losses = []
            for model, optimizer in zip(models, optimizers):
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss)
            exchange.step(losses)
        if epoch >= epochs // 2:  # the first half is burn-in
            checkpoints.append(copy.deepcopy(models[exchange.cold].state_dict()))

    cold = rx.torch.average([models[exchange.cold]], test).metrics()
    average = rx.torch.average(checkpoints, test, model=models[0]).metrics()
    return {"cold": cold, "average": average, "exchange": exchange.summary()}


if __name__ == "__main__":
    found = train(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    for name in ("cold", "average"):
        metrics = found[name]
        print(f"{name:8} accuracy {metrics.accuracy:.4f}  NLL {metrics.nll:.4f}")
    exchange = found["exchange"]
    print(
        f"swaps in a window {exchange['window_swap_rate']}, round trips {exchange['round_trips']}"
    )
