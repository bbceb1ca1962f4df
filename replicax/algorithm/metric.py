"""The metric of the local moves of a rung, from gradients: (E[g g'])^-1, of which L L' is made.

For a Gaussian that is its covariance. It sees the width inside a mode and not the distance between
modes.
"""

import numpy as np

MOST_DENSE = 300  # dimensions up to which the metric is a full matrix
WIDEST = 1e6  # between the scale of a parameter and the geometric mean of all
SQUARE_OF_NORMAL = 0.281  # exp(E log z^2) of a standard normal z
_ITERATIONS = 50


def metric_root(gradients: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return L with L L' close to (E[g g'])^-1, from gradients (sample, d).

    The scale of each parameter is that of the geometric mean of g^2, which a few steep places
    hardly change. Between parameters it is the shape that fits the directions of the gradients
    (Tyler, 1987), whatever their lengths. Both are measured in the coordinates of the metric
    `before`, to which few gradients are shrunk: round by round it comes closer.
    """
    gradients = gradients[np.all(np.isfinite(gradients), axis=1)].astype(float)
    if len(gradients) < 10:
        return before
    whitened = gradients @ before
    scale = _scales(whitened)
    whitened = whitened * scale
    shape = _shape(whitened[np.sum(whitened**2, axis=1) > 0])
    # Gradients have the covariance C of `shape`: the metric is C^-1 = R R', R = C^-1/2.
    value, vector = np.linalg.eigh(shape)
    return (before * scale) @ (vector / np.sqrt(value))


def _scales(gradients: np.ndarray) -> np.ndarray:
    log_square = np.mean(np.log(np.square(gradients) + 1e-30), axis=0)
    log_scale = (np.log(SQUARE_OF_NORMAL) - log_square) / 2
    centre, widest = log_scale.mean(), np.log(WIDEST) / 2
    return np.exp(np.clip(log_scale, centre - widest, centre + widest))


def _shape(x: np.ndarray) -> np.ndarray:
    """Return the shrunk scatter of the directions of x (sample, d), its diagonal 1 on average."""
    n, d = x.shape
    shape = np.eye(d)
    share = max(5 / (n + 5), min(1.0, (d / n) ** 2))  # of the diagonal
    for _ in range(_ITERATIONS):
        square = np.sum(x * np.linalg.solve(shape, x.T).T, axis=1)
        scatter = d / n * (x / square[:, None]).T @ x
        scatter = (1 - share) * scatter * d / np.trace(scatter) + share * np.eye(d)
        done = np.max(np.abs(scatter - shape)) < 1e-3
        shape = scatter
        if done:
            break
    return shape
