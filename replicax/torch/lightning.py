"""Replica exchange as a Lightning callback."""

from typing import Any

from replicax.interop.extras import import_extra
from replicax.torch.exchange import Exchange


def lightning_callback(learning_rate: Any, *, losses: str = "losses", **options: Any) -> Any:
    """Return a callback that exchanges the rungs of the models of a `LightningModule`.

    The module uses manual optimization (`automatic_optimization = False`): `configure_optimizers`
    returns one optimizer for each model, and `training_step` steps them and returns a dict with
    the losses of the step, one for each, under the name `losses`. `callback.exchange` is the
    `Exchange`, which is saved and restored with Lightning's checkpoints. Options are those of
    `Exchange`.
    """
    lightning = import_extra("lightning.pytorch", "lightning", "rx.torch.lightning_callback")

    class ExchangeCallback(lightning.Callback):
        """One exchange after every training step."""

        exchange: Exchange | None = None
        _loaded: dict[str, Any] | None = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            if pl_module.automatic_optimization:
                raise ValueError(
                    "Several optimizers need manual optimization: write automatic_optimization = "
                    "False in the LightningModule, and step the optimizers in training_step."
                )
            self.exchange = Exchange(trainer.optimizers, learning_rate, **options)
            if self._loaded is not None:
                self.exchange.load_state_dict(self._loaded)

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if not isinstance(outputs, dict) or losses not in outputs:
                raise ValueError(f'training_step must return a dict with "{losses}".')
            assert self.exchange is not None
            self.exchange.step(outputs[losses])

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if self.exchange is not None:
                self.exchange.summary()  # warns of a training without round trips

        def state_dict(self) -> dict[str, Any]:
            return {} if self.exchange is None else self.exchange.state_dict()

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self._loaded = state_dict or None

    return ExchangeCallback()
