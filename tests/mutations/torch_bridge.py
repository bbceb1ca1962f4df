"""Mutations of `replicax/torch/`, which count where PyTorch is installed."""

from mutations import mutations_of

_FILE = "torch_bridge/test_exchange.py"
_RATES = f"{_FILE}::test_every_optimizer_has_the_rate_of_its_rung"
_RESUMED = f"{_FILE}::test_a_resumed_exchange_goes_on_exactly"
_FACTOR = f"{_FILE}::test_schedulers_that_multiply_rates_multiply_the_ladder[step-before]"
_INPUTS = "torch_bridge/test_inputs.py"
_LANGEVIN = "torch_bridge/test_langevin.py"
_NOISE = f"{_LANGEVIN}::test_langevin_noise_has_the_temperature_of_the_coldest_rung"
_BAD = f"{_INPUTS}::test_bad_losses_are_refused_and_nothing_swaps"
_UNTOUCHED = "torch_bridge/test_untouched.py"
_REFUSED = f"{_INPUTS}::test_a_bad_exchange_is_refused_in_a_sentence"
_BROKEN = f"{_INPUTS}::test_a_broken_state_is_refused_whole"
_RANKS = "torch_bridge/test_ranks.py"

EXCHANGE = mutations_of(
    "torch/exchange.py",
    ("[ladder[rung] for rung in here]", "list(ladder)", _RATES),
    ("factor = self._rates.factor * factor", "factor = self._rates.factor", _FACTOR),
    ("self._paths.replace(saved.paths)", "pass", _RESUMED),
    (
        "if before[number] != self._rung_of[number]:",
        "if before[number] == self._rung_of[number]:",
        f"{_FILE}::test_a_swap_keeps_memory_or_resets_it",
    ),
)

PARTS = [
    *mutations_of(
        "torch/langevin.py",
        ("2 * (1 - group", "2 * (1 + group", _NOISE),
        ("[self._seed % 2**64, step, replica, times]", "[self._seed % 2**64, times]", _NOISE),
        ("_HOOKS.pop(optimizer).remove()", "pass", _LANGEVIN),
        ("if closure is None:", "if True:", _LANGEVIN),
        ("noise if scale is None else", "noise if True else", _LANGEVIN),
    ),
    *mutations_of(
        "torch/losses.py",
        ("if sum(map(abs, losses)) < _LARGEST:", "if True:", _BAD),
        (
            "torch.stack(losses).reshape(-1).tolist()",
            "[loss.item() for loss in losses]",
            f"{_UNTOUCHED}::test_losses_come_to_the_host_in_one_copy[floats-cpu]",
        ),
    ),
    *mutations_of(
        "torch/records.py",
        ("self._waiting = []", "pass", _RESUMED),
    ),
    *mutations_of(
        "torch/saved.py",
        ("rows.check(saved.history[name])", "pass", _BROKEN),
        ("paths.check(saved.paths)", "pass", _BROKEN),
    ),
    *mutations_of(
        "torch/optimizers.py",
        (
            "if first != number:",
            "if False:",
            f"{_INPUTS}::test_a_bad_exchange_is_refused_in_a_sentence",
        ),
        ("torch.optim.LBFGS | torch.optim.Rprop", "torch.optim.LBFGS", _REFUSED),
        (
            'self._fill(group["lr"], rate)',
            'group["lr"] = self._torch.tensor(rate)',
            f"{_UNTOUCHED}::test_a_compiled_optimizer_with_its_rate_in_a_tensor_is_not_compiled_again",
        ),
        (
            "all([x._version == at for x, at in self._versions])",
            "True",
            f"{_FILE}::test_rates_in_tensors_are_filled_in_place",
        ),
        (
            "if not np.all(off < _SAME):",
            "if False:",
            f"{_FILE}::test_schedulers_that_set_rates_are_refused_and_nothing_swaps",
        ),
    ),
    *mutations_of(
        "torch/ranks.py",
        ("self.first = int(self.counts[: self.rank].sum())", "self.first = self.rank", _RANKS),
        ("if gathered[:, 0].any():", "if False:", _RANKS),
    ),
    *mutations_of(
        "torch/average.py",
        ("elif its_inputs != checksums or", "elif", "torch_bridge/test_average.py"),
        ("module.eval()", "module.train()", "torch_bridge/test_average.py"),
    ),
]

MUTATIONS = [*EXCHANGE, *PARTS]
