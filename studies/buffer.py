"""The buffer with which the deterministic rule imitates the bias-corrected one: Lemma 2."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx
from replicax import theory
from replicax.results import figure_style
from studies.shared.study import Cell, Finding, Results, Scale, Study, Table, Work, number

_SLOPE = 0.9  # dT between the temperatures 1 and 10
_NOISES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # dT sigma
_GAPS = (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)  # dT dU
_WIDE = np.linspace(-4, 4, 161)  # dT dU over which errors are averaged
_BATCH = 50_000  # draws per seed
_MOST = 4.5  # standard errors: all 98 rates of a correct rule are below with probability 0.999
_TITLE = "The buffer of the deterministic rule"
_ABOUT = """
Without temperatures there is no Metropolis rule, so the paper swaps when the hotter rung's noisy
energy, plus a buffer C, lies below the colder one's. Lemma 2 says that for every energy gap dU a
positive buffer C⋆ of at most dT σ² makes this as likely as the bias-corrected rule does. Everything
depends only on dT dU and dT σ, so two surfaces show all of C⋆: where it is negative, and how far it
is below its upper bound. A ladder has one buffer for all gaps; the second part asks how well one
constant can do. The closed forms are checked with the library's own rules on simulated noise.
"""


def cells(scale: Scale) -> list[Cell]:
    settings = {"seeds": scale.num_seeds(20, 1)}
    noises = scale.choose(_NOISES, (0.5, 1.0, 2.0, 3.0))
    return [Cell(f"noise={noise}", {"noise": noise, **settings}) for noise in noises]


def run(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    """Measure how often the library's rules accept, at the C⋆ of every gap."""
    noise, num_seeds = settings["noise"], settings["seeds"]
    gap, sigma = np.array(_GAPS) / _SLOPE, noise / _SLOPE
    buffer = np.asarray(theory.optimal_buffer(gap, _SLOPE, sigma))
    rates = []
    for seed in range(num_seeds):
        work.tick(seed / num_seeds)
        rates.append(verdicts(seed, gap, sigma, buffer).mean(axis=1))
    deterministic, corrected = np.mean(rates, axis=0)
    return {
        "deterministic": deterministic,  # (gap,)
        "corrected": corrected,
        "num_draws": num_seeds * _BATCH,
        "best_buffer": best_buffer(noise),  # times dT
    }


def verdicts(seed: int, gap: np.ndarray, sigma: float, buffer: np.ndarray) -> np.ndarray:
    """Return the verdicts of both rules on noisy energies  (rule, draw, gap)."""
    key, shape = jax.random.key(seed), (_BATCH, gap.size)
    cold, hot, uniform = jax.random.split(key, 3)
    proposal = rx.swap.Proposal(
        cold_energy=jnp.asarray(gap) + sigma * jax.random.normal(cold, shape),
        hot_energy=sigma * jax.random.normal(hot, shape),
        inverse_temperature_gap=_SLOPE,
        energy_noise_var=sigma**2,
        buffer=jnp.asarray(buffer),
        log_uniform=jnp.log(jax.random.uniform(uniform, shape)),
    )
    rules = rx.swap.deterministic(), rx.swap.bias_corrected(sigma)
    return np.stack([rx.swap.judge(rule, proposal) for rule in rules])


def mean_error(buffer: Any, noise: float) -> float:
    """Return |deterministic - bias-corrected| of a constant buffer, averaged over gaps; dT = 1."""
    rate = theory.deterministic_swap_probability(_WIDE, buffer, noise)
    return float(np.mean(np.abs(rate - corrected_rate(noise))))


def corrected_rate(noise: float) -> np.ndarray:
    return np.asarray(theory.swap_probability_under_noise(_WIDE, 1.0, noise))


def best_buffer(noise: float) -> float:
    """Return the constant buffer with the smallest mean error, times dT."""
    from scipy.optimize import minimize_scalar

    bounds = (-4.0, noise**2)
    minimum: Any = minimize_scalar(mean_error, bounds=bounds, args=(noise,), method="bounded")
    return float(minimum.x)


@functools.cache
def sign_change(gap: float = 0.0) -> float:
    """Return the dT sigma above which C_star is positive at this dT dU.

    There both rules accept equally often without a buffer.
    """
    from scipy.optimize import brentq

    root: Any = brentq(lambda noise: theory.optimal_buffer(gap, 1.0, noise), 0.05, 10)
    return float(root)


def surface() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return dT dU (gap,), dT sigma (noise,) and dT C_star (noise, gap)."""
    noise = np.linspace(0.05, 3, 119)
    return _WIDE, noise, np.asarray(theory.optimal_buffer(_WIDE, 1.0, noise[:, None]))


def standard_errors(record: Any, name: str, noise: float) -> float:
    """Return the largest distance of a rule to the bias-corrected rate, over the gaps.

    By Lemma 2 both rules have this rate.
    """
    rate = np.asarray(theory.swap_probability_under_noise(np.array(_GAPS), 1.0, noise))
    count = record["num_draws"]
    error = np.sqrt(np.maximum(rate * (1 - rate), 1 / count) / count)  # at least one draw
    return float(np.max(np.abs(record[name] - rate) / error))


def margin_below_bound() -> float:
    """Return the smallest excess of the bias-corrected rate over that of a buffer dT sigma^2.

    A larger buffer means fewer swaps, so C_star is below this bound where the excess is positive.
    """
    gap, noise, _ = surface()
    noise = noise[:, None]
    at_bound = theory.deterministic_swap_probability(gap, noise**2, noise)
    return float(np.min(theory.swap_probability_under_noise(gap, 1.0, noise) - at_bound))


def findings(results: Results) -> list[Finding]:
    noises = [settings["noise"] for settings, _ in results]
    margin, zero = margin_below_bound(), sign_change()
    rate = {s["noise"]: float(r["corrected"][_GAPS.index(0.0)]) for s, r in results}
    quiet, noisy = max(n for n in noises if n < zero), min(n for n in noises if n > zero)
    relative = [mean_error(r["best_buffer"], s["noise"]) / corrected_rate(s["noise"]).mean()
                for s, r in results]  # fmt: skip
    return [
        *distances(results),
        Finding("C⋆ ≤ dT σ²: least room, as a swap probability", "at least 0", margin,
                "at least 0", margin >= -1e-12),
        Finding("dT σ at which C⋆ changes sign, dU = 0", "0.954", zero, "0.953 to 0.955",
                0.953 < zero < 0.955),
        Finding(f"bias-corrected swap rate, dU = 0, dT σ = {quiet}: C⋆ < 0", "C⋆ > 0", rate[quiet],
                "above 1/2", rate[quiet] > 0.5),
        Finding(f"bias-corrected swap rate, dU = 0, dT σ = {noisy}: C⋆ > 0", "C⋆ > 0", rate[noisy],
                "below 1/2", rate[noisy] < 0.5),
        Finding("mean error of one constant buffer over the mean swap rate, by noise", "",
                ", ".join(f"{value:.3f}" for value in relative), "falls with the noise",
                bool(np.all(np.diff(relative) < 0))),
    ]  # fmt: skip


def distances(results: Results) -> list[Finding]:
    """Compare the library's rules with the closed form."""
    lines = []
    for name, label in (("deterministic", "deterministic at C⋆"), ("corrected", "bias-corrected")):
        worst = max(standard_errors(record, name, s["noise"]) for s, record in results)
        what = f"{label} rule against the closed form: most standard errors"
        lines.append(Finding(what, "0", worst, f"at most {_MOST}", worst <= _MOST))
    return lines


def tables(results: Results) -> list[Table]:
    header = ["dT σ", "dT C⋆ at dU = 0", "best constant × dT", "its mean error",
              "mean error of C⋆ at dU = 0", "mean error of dT σ²", "mean swap rate",
              "Metropolis, exact energies"]  # fmt: skip
    exact = float(np.exp(np.minimum(0.0, _WIDE)).mean())
    lines = []
    for settings, record in results:
        noise, best = settings["noise"], float(record["best_buffer"])
        at_zero = float(theory.optimal_buffer(0.0, 1.0, noise))
        errors = [mean_error(buffer, noise) for buffer in (best, at_zero, noise**2)]
        lines.append([noise, at_zero, best, *errors, corrected_rate(noise).mean(), exact])
    return [Table("One buffer for all gaps, dT dU from -4 to 4", header, lines)]


def notes(results: Results) -> list[str]:
    _, noise, buffers = surface()
    negative = buffers < 0
    always = noise[negative.all(axis=1)].max()
    never = noise[negative.any(axis=1)].max()
    far = ", ".join(f"{sign_change(gap):.2f} at dT dU = {gap:g}" for gap in (-4.0, -2.0, 2.0, 4.0))
    quiet, loud = (min(results, key=lambda pair, n=n: abs(pair[0]["noise"] - n)) for n in (0.5, 3))
    errors = [mean_error(record["best_buffer"], s["noise"]) for s, record in (quiet, loud)]
    rates = [corrected_rate(s["noise"]).mean() for s, _ in (quiet, loud)]
    return [
        f"Lemma 2 wants C⋆ > 0. At dU = 0 that needs dT σ > {sign_change():.4f}, and elsewhere "
        f"{far}. Over dT dU from -4 to 4 C⋆ is negative everywhere up to dT σ = {always:.2f} and "
        f"somewhere up to {never:.2f}: {100 * negative.mean():.0f} % of the surface with "
        "dT σ ≤ 3.",
        "The upper bound of Lemma 2, C⋆ ≤ dT σ², does hold. It is no estimate of C⋆: at dU = 0, "
        f"dT σ = 1 it is 1, and C⋆ is {float(theory.optimal_buffer(0.0, 1.0, 1.0)):.3f}.",
        "One constant buffer imitates the bias-corrected rule the better the more noise there is: "
        f"a mean error of {number(errors[0])} at a mean swap rate of {number(rates[0])} for dT σ = "
        f"{quiet[0]['noise']:g}, of {number(errors[1])} at {number(rates[1])} for dT σ = "
        f"{loud[0]['noise']:g}. That noise costs the swaps themselves.",
    ]


def figures(results: Results) -> dict[str, Any]:
    return {"surface": draw_surface(), "curves": draw_curves(results), "error": draw_error()}


def draw_surface() -> Any:
    figure = figure_style.new_figure(10.5, 4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    gap, noise, buffers = surface()
    shares = buffers / noise[:, None] ** 2
    for axes, shown, levels, title in (
        (left, buffers, np.arange(-4, 9), "dT C⋆"),
        (right, shares, np.linspace(-1, 1, 11), "C⋆ / (dT σ²)"),
    ):
        limit = max(abs(levels[0]), abs(levels[-1]))
        mesh = axes.contourf(gap, noise, shown, levels, cmap="RdBu_r", vmin=-limit, vmax=limit,
                             extend="both")  # fmt: skip
        axes.contour(gap, noise, shown, [0.0], colors=figure_style.INK, linewidths=1.4)
        figure.colorbar(mesh, ax=axes)
        figure_style.label(axes, "energy gap, dT dU", "noise, dT σ" if axes is left else "", title)
        axes.grid(False)
    left.plot(0, sign_change(), "o", color=figure_style.INK)
    left.annotate(
        f"dT σ = {sign_change():.3f}", (0, sign_change()), (0.4, 1.15), color=figure_style.INK
    )
    figure.set_label(
        "The buffer of Lemma 2 against energy gap and noise (left), and as a share of its upper "
        "bound (right). Below the black line it is negative."
    )
    return figure


def draw_curves(results: Results) -> Any:
    shown = [pair for pair in results if pair[0]["noise"] in (0.5, 1.0, 2.0, 3.0)]
    figure = figure_style.new_figure(11, 3.6)
    row = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, (settings, record) in zip(row, shown, strict=True):
        noise, buffer = settings["noise"], float(record["best_buffer"])
        deterministic = theory.deterministic_swap_probability(_WIDE, buffer, noise)
        metropolis = np.exp(np.minimum(0, _WIDE))
        axes.plot(_WIDE, metropolis, ":", color=figure_style.SOFT, label="Metropolis")
        corrected = corrected_rate(noise)
        axes.plot(_WIDE, corrected, color=figure_style.CHAINS[0], label="bias-corrected")
        axes.plot(_WIDE, deterministic, **figure_style.DASHED, label="deterministic, best constant")
        axes.plot(_GAPS, record["deterministic"], "o", color=figure_style.ACCENT, ms=5,
                  label="deterministic at C⋆, simulated")  # fmt: skip
        y = "swap probability" if axes is row[0] else ""
        figure_style.label(axes, "dT dU", y, f"dT σ = {noise:g}, dT C = {buffer:.2f}")
    figure_style.legend_below(row[0])
    figure.set_label(
        "How often the rules accept. With C⋆ of each gap the deterministic rule agrees with the "
        "bias-corrected one; one constant for all gaps comes near."
    )
    return figure


def draw_error() -> Any:
    figure = figure_style.new_figure(7, 4)
    axes = figure.add_subplot()
    noises = np.linspace(0.1, 4, 40)
    kinds = {
        "best constant": best_buffer,
        "C⋆ at dU = 0": lambda noise: float(theory.optimal_buffer(0.0, 1.0, noise)),
        "dT σ²": lambda noise: noise**2,
    }
    for colour, (name, choose) in zip(figure_style.CHAINS, kinds.items(), strict=False):
        errors = [mean_error(choose(noise), noise) for noise in noises]
        axes.plot(noises, errors, color=colour, label=name)
    rates = np.array([corrected_rate(noise).mean() for noise in noises])
    exact = np.exp(np.minimum(0.0, _WIDE)).mean()
    axes.plot(noises, exact - rates, **figure_style.DASHED, label="what the noise itself costs")
    axes.set_ylim(0, 0.3)
    figure_style.label(axes, "noise, dT σ", "mean difference of swap rates", "Error of one buffer")
    figure_style.legend(axes)
    figure.set_label(
        "Mean error of one constant buffer for dT dU from -4 to 4, and what the bias correction "
        "costs against exact energies (dashed)."
    )
    return figure


STUDY = Study("buffer", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
