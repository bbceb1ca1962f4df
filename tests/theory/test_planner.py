"""The plan agrees with the closed forms, survives JSON and prints."""

import json
import math

import pytest

from replicax import theory
from replicax.theory.planner import SCHEMES, plan, render


def printed(answer: dict) -> str:
    from rich.console import Console

    console = Console(width=120)
    with console.capture() as capture:
        console.print(render(answer))
    return capture.get()


def test_numbers_of_the_25_modes():
    answer = plan(16, 0.4)
    assert (answer["window"], answer["window_exact"]) == (8, 7)
    trips = {name: round(rate, 2) for name, rate in answer["round_trips_per_1000_steps"].items()}
    assert trips == {"adj": 42.55, "seo": 13.33, "deo": 21.28, "deo_star": 49.75}
    assert answer["extra_time"] == pytest.approx(0.003, abs=5e-4)
    assert answer["round_trip_time"]["deo_star"] == theory.round_trip_time(0.6, 8, 16)
    assert answer["num_replicas_worth_having"] is None


def test_numbers_of_cifar():
    answer = plan(10, 0.005)
    assert (answer["window"], answer["window_exact"]) == (626, 604)
    per_100_epochs = 100 * 196 / 1000
    trips = answer["round_trips_per_1000_steps"]
    assert per_100_epochs * trips["deo"] == pytest.approx(5.5, abs=0.05)
    assert per_100_epochs * trips["deo_star"] == pytest.approx(11.1, abs=0.05)


def test_attempts():
    answer = plan(5, 0.25)
    assert answer["attempts_per_step"]["adj"] == 4
    assert answer["attempts_per_step"]["seo"] == answer["attempts_per_step"]["deo"] == 2
    window, per_pair = answer["window"], 0.0
    for earlier in range(window):  # an attempt happens if all before it in the window failed
        per_pair += 0.75**earlier
    assert answer["attempts_per_step"]["deo_star"] == pytest.approx(2 * per_pair / window)


def test_worth_having_gives_both_exponents():
    worth = plan(16, 0.4, energy_noise_std=30, temperatures=(1, 10))["num_replicas_worth_having"]
    assert worth["corrected"] == theory.optimal_num_replicas(30, (1, 10))._asdict()
    assert worth["corrected"]["upper"] == pytest.approx(math.sqrt(2) * worth["paper"]["upper"])
    per_pair = plan(3, 0.4, energy_noise_std=[3, 4], temperatures=[1, 2, 4])
    assert per_pair["num_replicas_worth_having"]["paper"]["num_replicas"] == 4


def test_what_is_printed_of_noise():
    noise = {"energy_noise_std": 30, "temperatures": (1, 10)}
    few, many = (plan(num_replicas, 0.4, **noise) for num_replicas in (42, 43))
    assert few["num_replicas_worth_having"]["corrected"]["num_replicas"] == 43
    advice = "let a window help"
    assert advice in few["notes"][-1] and advice not in many["notes"][-1]
    assert "worth having (corrected)" in printed(few) and "worth" not in printed(plan(42, 0.4))


@pytest.mark.parametrize("num_replicas", [2, 3, 4, 16, 1000])
@pytest.mark.parametrize("swap_rate", [1e-6, 0.4, 0.99])
def test_survives_json_and_prints(num_replicas, swap_rate):
    answer = plan(num_replicas, swap_rate, energy_noise_std=5, temperatures=[1, 4])
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    text = printed(answer)
    assert all(name in text for name in SCHEMES.values())
    assert "worth having (paper)" in text


@pytest.mark.parametrize(
    ("num_replicas", "swap_rate", "note"),
    [
        (3, 0.1, "DEO* is DEO here"),
        (4, 0.5, "window 3 is slower than window 1 here"),
        (16, 0.4, "window 8 costs 0.3% more time than the exact minimiser 7"),
    ],
)
def test_notes(num_replicas, swap_rate, note):
    answer = plan(num_replicas, swap_rate)
    assert len(answer["notes"]) == 1 and note in answer["notes"][0]
    assert note.split()[0] in printed(answer)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((1, 0.4), {}, "at least 2"),
        ((8, 1.4), {}, "strictly between 0 and 1"),
        ((8, 0.4), {"energy_noise_std": 2.0}, "together, or neither"),
        ((8, 0.4), {"temperatures": (1, 2)}, "together, or neither"),
        ((8, 0.4), {"energy_noise_std": 2.0, "temperatures": (1, 2, 3)}, "one per rung"),
        ((8, 0.4), {"energy_noise_std": [1, 2], "temperatures": (1, 2)}, "one per pair"),
        ((8, 0.4), {"energy_noise_std": 2.0, "temperatures": (2, 1)}, "increasing"),
    ],
)
def test_bad_arguments_are_refused(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(*arguments, **options)
