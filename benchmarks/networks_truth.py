"""Networks beside references that are known to be right: docs/results/networks-truth.md.

    python benchmarks/networks_truth.py [--out docs/results] [--only PART ...] [--page]

Small regressions against NUTS (NumPyro), a small convolutional network on scikit-learn's digits
against HMC over all rows (BlackJAX, several chains). Every method of `rx.train` from new networks,
at its defaults: only epochs, the number of networks and the seed are given. A part that is in
networks-truth.json is not made again; the page is written from it at the end.
"""

import argparse
import json
import platform
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import replicax as rx

REGRESSIONS = {  # hidden units, rows, noise, inputs, batch size, epochs
    "wave": ((20,), 60, 0.3, 1, 16, 1500),
    "wide": ((50,), 150, 0.2, 1, 32, 1500),
    "deep": ((15, 15), 200, 0.3, 3, 32, 1200),
}
METHODS = (
    "sghmc-pt", "sgld", "ensemble-then-sample",
    "deep-ensemble", "deo-star", "cyc-sghmc", "cyc-swag",
)  # fmt: skip
SAMPLES = METHODS[:3]
PLACES = ("in range", "in the gap", "outside")
NETWORKS = 10
READING = """`sghmc-pt` and `sgld` are right here, by this measure, in every place;
`ensemble-then-sample` has one ratio of 1.11 outside the rows, with the second seed. The other
methods have another aim: the spread of their networks is an eighth of the posterior's or less. Two
seeds show what a run varies by; what has no row has not been run. One run of the wider network was
told that its members had not mixed, by an R-hat of 1.20; it was right. The length of a step and
the burn-in were chosen on the first two networks; the third was run afterwards, with nothing
changed."""
CLOSING = """\
`sghmc-pt`, `sgld` and `ensemble-then-sample` predict what the three chains together do more
closely than a single chain does what the others do (a variation of .08 against .12). The other
methods have another aim, and are .11 to .16 away. One seed of each, chains of 30 draws: finer
differences are not told."""
IMAGES, TESTS, CHAINS, KEPT, LEAPFROG = 1000, 500, 3, 30, 20
CNN = {"epochs": 40, "batch_size": 50, "networks": 3}


def method_of(name):
    """The method at its defaults; of those that hold rows out, all rows are used."""
    if name == "ensemble-then-sample":
        return rx.ensemble_then_sample(sample_from=0.4)
    return name


# Regressions


def regression_of(name):
    """The problem, its network, and the inputs at which predictions are compared, by place."""
    hidden, count, noise, dims, batch_size, _ = REGRESSIONS[name]
    rng = np.random.default_rng(len(name) + count)
    sides = rng.uniform(0.7, 2.0, count) * np.where(np.arange(count) % 2, 1, -1)
    x = np.concatenate([sides[:, None], rng.normal(size=(count, dims - 1))], axis=1)
    y = np.sin(2 * x[:, 0]) + (0.5 * np.tanh(x[:, 1]) if dims > 1 else 0)
    y = y + noise * rng.normal(size=count)
    network = rx.nn.mlp(dims, 1, hidden=hidden, activation="tanh")
    problem = rx.regression(
        network, (x.astype(np.float32), y), batch_size=batch_size, noise=noise,
        standardise=False, weight_decay=1 / count,
    )  # fmt: skip
    grid = np.zeros((30, dims), np.float32)
    grid[:, 0] = np.concatenate(
        [np.linspace(-2, -0.7, 10), np.linspace(-0.5, 0.5, 10), np.linspace(2.5, 4, 10)]
    )
    return problem, network, (x.astype(np.float32), y, noise), grid


def nuts(name):
    """Mean and sd of the outputs by NUTS, and the most that they differ between chains."""
    from numpyro.infer import MCMC, NUTS

    _, network, (x, y, noise), grid = regression_of(name)
    start, unravel = ravel_pytree(network.init(jax.random.key(0))[0])
    outputs = lambda flat, inputs: network.apply(unravel(flat), {}, inputs, True)[0][:, 0]  # noqa: E731

    def potential(flat):
        residual = (outputs(flat, jnp.asarray(x)) - y) / noise
        return 0.5 * jnp.sum(residual**2) + 0.5 * jnp.sum(flat**2)

    kernel = NUTS(potential_fn=potential, max_tree_depth=9)
    chains = MCMC(
        kernel, num_warmup=500, num_samples=500, num_chains=4, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    starts = jax.random.normal(jax.random.key(1), (4, len(start)))
    chains.run(jax.random.key(2), init_params=starts, extra_fields=("num_steps",))
    draws = chains.get_samples(group_by_chain=True)
    found = np.asarray(jax.jit(jax.vmap(jax.vmap(lambda one: outputs(one, grid))))(draws))
    pooled = found.reshape(-1, len(grid))
    return {
        "mean": pooled.mean(0).tolist(), "sd": pooled.std(0).tolist(),
        "chains": [compared(one, pooled.mean(0), pooled.std(0)) for one in found],
        "gradients": int(chains.get_extra_fields()["num_steps"].sum()), "params": len(start),
    }  # fmt: skip


def compared(outputs, mean, sd):
    """By place: the ratio of standard deviations, and the error of the mean in those."""
    ratio, error = outputs.std(0) / sd, np.square((outputs.mean(0) - mean) / sd)
    places = [slice(0, 10), slice(10, 20), slice(20, 30)]
    return {
        name: [float(ratio[place].mean()), float(np.sqrt(error[place].mean()))]
        for name, place in zip(PLACES, places, strict=True)
    }


def trained_of(problem, network, name, seed, epochs, networks):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trained = rx.train(
            problem, network.init, method=method_of(name), epochs=epochs, num_replicas=networks,
            seed=seed, progress=False,
        )  # fmt: skip
    told = [str(one.message) for one in said if issubclass(one.category, UserWarning)]
    about = {"heating": trained.heating, "rhat": trained.rhat_of_members, "told": told}
    about |= {"kept": len(trained.networks.weight), "rate": float(trained.learning_rates[0, 0])}
    return trained, about


def regression(name, method, seed, truth):
    problem, network, _, grid = regression_of(name)
    epochs = REGRESSIONS[name][-1]
    trained, about = trained_of(problem, network, method, seed, epochs, NETWORKS)
    outputs = np.asarray(trained.predict(grid, members=True)[0])
    return compared(outputs, np.array(truth["mean"]), np.array(truth["sd"])) | about


# A convolutional network


def convolutional():
    """Two convolutions with tanh and a dense layer, for images of 8 x 8."""

    def init(key):
        shapes = {"a": (3, 3, 1, 8), "b": (3, 3, 8, 8), "c": (128, 10)}
        keys = dict(zip(shapes, jax.random.split(key, 3), strict=True))
        scale = {name: np.prod(shape[:-1]) ** -0.5 for name, shape in shapes.items()}
        params = {n: scale[n] * jax.random.normal(keys[n], shape) for n, shape in shapes.items()}
        biases = {name + "0": jnp.zeros(shape[-1]) for name, shape in shapes.items()}
        return params | biases, {}

    def conv(x, w, stride):
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def apply(params, state, images, train):
        x = jnp.tanh(conv(images, params["a"], 2) + params["a0"])
        x = jnp.tanh(conv(x, params["b"], 1) + params["b0"])
        return x.reshape(len(x), -1) @ params["c"] + params["c0"], state

    return rx.nn.Network(init, apply)


def digits():
    from sklearn.datasets import load_digits

    loaded = load_digits()
    order = np.random.default_rng(0).permutation(len(loaded.target))
    images = (loaded.images[order, :, :, None] / 8 - 1).astype(np.float32)
    labels = loaded.target[order].astype(np.int32)
    rng = np.random.default_rng(1)  # wrong labels and noise, so that something is left to doubt
    images += rng.normal(size=images.shape).astype(np.float32)
    rows, test = slice(0, IMAGES), slice(IMAGES, IMAGES + TESTS)
    return (images[rows], labels[rows]), (images[test], labels[test])


def hmc(chain):
    """Class probabilities of the test by one chain of HMC over all rows, from a new network."""
    import blackjax

    (images, labels), (test, _) = digits()
    network = convolutional()
    start, unravel = ravel_pytree(network.init(jax.random.key(100 + chain))[0])
    logits = lambda flat, x: network.apply(unravel(flat), {}, x, True)[0]  # noqa: E731
    images, labels = jnp.asarray(images), jnp.asarray(labels)

    def log_density(flat):
        log_probs = jax.nn.log_softmax(logits(flat, images))
        return jnp.sum(log_probs[jnp.arange(len(labels)), labels]) - 0.5 * 10 * jnp.sum(flat**2)

    step = jax.jit(
        lambda key, state, size: blackjax.hmc(
            log_density, size, jnp.ones(len(start)), LEAPFROG
        ).step(key, state)
    )
    state = blackjax.hmc(log_density, 1e-3, jnp.ones(len(start)), LEAPFROG).init(start)
    size, accepted, probs, energies = 2e-3, [], [], []
    for number in range(2 * KEPT):
        state, info = step(jax.random.fold_in(jax.random.key(chain), number), state, size)
        if number < KEPT:
            size *= float(np.exp((float(info.acceptance_rate) - 0.8) * 0.3))
        else:
            accepted.append(float(info.acceptance_rate))
            probs.append(np.asarray(jax.nn.softmax(logits(state.position, test)), np.float16))
        energies.append(-float(state.logdensity))
    mean = np.mean(np.asarray(probs, float), axis=0)
    return {
        "probs": np.round(mean, 5).tolist(), "accepted": float(np.mean(accepted)), "size": size,
        "energy": [float(np.mean(part)) for part in np.split(np.array(energies[KEPT:]), 3)],
        "params": len(start),
    }  # fmt: skip


def classes(method, seed, truths):
    train, test = digits()
    problem = rx.classification(
        convolutional(), train, test=test, batch_size=CNN["batch_size"], weight_decay=10 / IMAGES
    )
    network = convolutional()
    trained, about = trained_of(problem, network, method, seed, CNN["epochs"], CNN["networks"])
    probs = np.exp(np.asarray(trained.predict(test[0])))
    pooled = np.mean([np.array(one["probs"]) for one in truths], axis=0)
    metrics = trained.metrics()
    return agreement(probs, pooled) | about | {"nll": metrics.nll, "accuracy": metrics.accuracy}


def agreement(p, q):
    return {
        "agreement": float(np.mean(p.argmax(1) == q.argmax(1))),
        "variation": float(np.abs(p - q).sum(1).mean() / 2),
    }


# Parts, and the page


def parts():
    """What is made, by name: a function of what was made before."""
    made = {}
    for name in REGRESSIONS:
        made[f"nuts {name}"] = lambda found, name=name: nuts(name)
        for method in METHODS:
            for seed in (0, 1) if method in SAMPLES else (0,):
                made[f"{name} {method} {seed}"] = lambda found, args=(name, method, seed): (
                    regression(*args, found[f"nuts {args[0]}"])
                )
    for chain in range(CHAINS):
        made[f"hmc {chain}"] = lambda found, chain=chain: hmc(chain)
    for method in METHODS:
        made[f"digits {method} 0"] = lambda found, method=method: classes(
            method, 0, [found[f"hmc {chain}"] for chain in range(CHAINS)]
        )
    return made


PAGE = """# Networks beside references that are right

What networks at temperature 1 should look like can be computed where they are small. Every method
of `rx.train` starts from new networks and is left at its defaults: only epochs, the number of
networks and the seed are given (and `sample_from=0.4` of `ensemble-then-sample`, which otherwise
holds rows out). `python benchmarks/networks_truth.py` makes the numbers, part by part, and writes
this page; {about}.

## Regressions, against NUTS

Hidden layers of tanh, rows on two sides of a gap, a known noise, and a standard normal prior of
every parameter; {networks} networks, mini-batches of 16 or 32 rows. By place: the mean ratio of the
standard deviation of the network's output to that of NUTS, and in brackets the root mean square
error of its mean in units of that standard deviation. Right is a ratio from 0.9 to 1.1.

{regressions}

NUTS is NumPyro's, four chains of 500 draws after 500; its own row has the range of the ratios of
single chains to all.

{reading}

## A small convolutional network, against HMC

{images} noisy images of scikit-learn's digits (8 x 8, with noise of a standard deviation of 1), two
convolutions with tanh and a dense layer, {params} parameters, a normal prior of the precision 10.
HMC over all rows (BlackJAX), {chains} chains from new networks, {kept} draws of {leapfrog} leapfrog
steps after as many. Our methods: {epochs} epochs of {few} networks, mini-batches of {batch} rows.
Agreement is the share of {tests} test images with the same top class, variation the mean total
variation of the predictive distributions. What a single chain has beside the others is the best
that can be expected.

{digits}

{closing}
"""


def page(found):
    """The page of the numbers that there are."""
    rows = ["| | | " + " | ".join(PLACES) + " | heating | told | s |", "|---" * 7 + "|"]
    for name, (hidden, count, noise, dims, _, epochs) in REGRESSIONS.items():
        truth = found.get(f"nuts {name}")
        if truth is None:
            continue
        net = "-".join(map(str, (dims, *hidden, 1)))
        title = f"{net}, {count} rows, noise {noise}, {epochs:,} epochs"
        single = [[one[place][0] for one in truth["chains"]] for place in PLACES]
        ranges = " | ".join(f"{min(x):.2f} to {max(x):.2f}" for x in single)
        rows.append(f"| {title} | NUTS | {ranges} | | | {truth['seconds']:.0f} |")
        for method in METHODS:
            for seed in (0, 1):
                one = found.get(f"{name} {method} {seed}")
                if one is not None:
                    cells = " | ".join(f"{one[p][0]:.2f} ({one[p][1]:.2f})" for p in PLACES)
                    rows.append(f"| | {method}, seed {seed} | {cells} | {_rest(one)} |")
    return "\n".join(rows), _digits(found)


def _rest(one):
    heating = "" if one["heating"] is None else f"{100 * one['heating']:+.1f} %"
    return f"{heating} | {'yes' if one['told'] else ''} | {one['seconds']:.0f}"


def _digits(found):
    chains = [found[f"hmc {n}"] for n in range(CHAINS) if f"hmc {n}" in found]
    rows = ["| | agreement | variation | NLL | accuracy | heating | told | s |", "|---" * 8 + "|"]
    probs = [np.array(one["probs"]) for one in chains]
    for number, one in enumerate(probs if len(probs) > 1 else []):
        others = np.mean(probs[:number] + probs[number + 1 :], axis=0)
        near, chain = agreement(one, others), chains[number]
        cells = (
            f"{near['agreement']:.3f} | {near['variation']:.3f} | | | | | {chain['seconds']:.0f}"
        )
        rows.append(f"| HMC, chain {number} beside the others | {cells} |")
    for method in METHODS:
        one = found.get(f"digits {method} 0")
        if one is not None:
            scores = f"{one['nll']:.3f} | {one['accuracy']:.3f}"
            near = f"{one['agreement']:.3f} | {one['variation']:.3f}"
            rows.append(f"| {method} | {near} | {scores} | {_rest(one)} |")
    return "\n".join(rows)


def write_page(out, found):
    regressions, table = page(found)
    about = found["about"]
    filled = {
        "about": f"replicax {about['replicax']}, jax {about['jax']}, Python {about['python']}, two "
        f"cores ({about['processor']}) shared with other work; seconds are processor time, with "
        "compilation",
        "networks": NETWORKS, "regressions": regressions, "digits": table, "images": f"{IMAGES:,}",
        "tests": TESTS, "chains": CHAINS, "kept": KEPT, "leapfrog": LEAPFROG,
        "epochs": CNN["epochs"], "few": CNN["networks"], "batch": CNN["batch_size"],
        "params": f"{found['hmc 0']['params']:,}" if "hmc 0" in found else "?",
        "reading": READING, "closing": CLOSING,
    }  # fmt: skip
    text = PAGE
    for name, value in filled.items():
        text = text.replace("{" + name + "}", str(value))
    (out / "networks-truth.md").write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    path = options.out / "networks-truth.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for name, make in parts().items():
        wanted = any(name.startswith(word) for word in options.only) and not options.page
        if name in found or not wanted:
            continue
        began = time.process_time()
        found[name] = make(found) | {"seconds": round(time.process_time() - began, 1)}
        shown = {key: x for key, x in found[name].items() if key not in ("probs", "mean", "sd")}
        print(name, json.dumps(shown), flush=True)
        machine = {"python": platform.python_version(), "jax": jax.__version__}
        found["about"] = machine | {"replicax": rx.__version__, "processor": platform.machine()}
        path.write_text(json.dumps(found, indent=0) + "\n")
    write_page(options.out, found)


if __name__ == "__main__":
    main()
