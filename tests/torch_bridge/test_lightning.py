"""The callback exchanges the models of a LightningModule, and is saved with its checkpoints."""

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")

import replicax as rx  # noqa: E402


class Models(lightning.LightningModule):
    def __init__(self, automatic: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = automatic
        self.models = torch.nn.ModuleList(torch.nn.Linear(3, 1) for _ in range(3))

    def configure_optimizers(self):
        return [torch.optim.SGD(model.parameters(), lr=0.1) for model in self.models]

    def training_step(self, batch, batch_idx):
        losses = []
        for model, optimizer in zip(self.models, self.optimizers()):
            loss = model(batch[0]).square().mean() + torch.randn(())
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            losses.append(loss.detach())
        return {"losses": losses}


def trainer(folder, callback, epochs: int):
    return lightning.Trainer(
        max_epochs=epochs,
        callbacks=[callback],
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def loader():
    data = torch.utils.data.TensorDataset(torch.ones(40, 3))
    return torch.utils.data.DataLoader(data, batch_size=4)


@pytest.mark.filterwarnings("ignore")
def test_a_training_exchanges_and_resumes(tmp_path) -> None:
    torch.manual_seed(0)
    options = dict(learning_rate=(0.01, 0.1), target_swap_rate=0.3, window=2)
    callback = rx.torch.lightning_callback(**options)
    first = trainer(tmp_path, callback, epochs=2)
    first.fit(Models(), loader())
    exchange = callback.exchange
    assert exchange.num_steps == 20
    assert len({tuple(path) for path in exchange.index_paths.tolist()}) > 1
    first.save_checkpoint(tmp_path / "run.ckpt")
    resumed = rx.torch.lightning_callback(**options)
    trainer(tmp_path, resumed, epochs=3).fit(Models(), loader(), ckpt_path=tmp_path / "run.ckpt")
    assert resumed.exchange.num_steps == 30
    assert resumed.exchange.index_paths[:20].tolist() == exchange.index_paths.tolist()


@pytest.mark.filterwarnings("ignore")
def test_an_automatic_optimization_is_refused(tmp_path) -> None:
    callback = rx.torch.lightning_callback((0.01, 0.1))
    module = Models(automatic=True)
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="automatic_optimization = False"):
        trainer(tmp_path, callback, epochs=1).fit(module, loader())
