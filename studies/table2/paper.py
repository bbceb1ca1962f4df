"""The methods of Table 2, and their numbers in the paper and in the authors' logs."""

RESULTS: dict[str, dict[str, tuple[float, float, float, float]]] = {  # NLL, sd, accuracy, sd
    "resnet20": {
        "cyc-sghmc": (8198, 59, 76.26, 0.18),
        "cyc-swag": (8164, 38, 76.13, 0.21),
        "ensemble": (7902, 64, 76.59, 0.11),
        "deo": (7964, 23, 76.84, 0.12),
        "deo-star": (7741, 67, 77.37, 0.16),
    },
    "resnet32": {
        "cyc-sghmc": (7401, 28, 78.54, 0.15),
        "cyc-swag": (7389, 32, 78.62, 0.13),
        "ensemble": (7204, 29, 79.02, 0.09),
        "deo": (7152, 41, 79.34, 0.15),
        "deo-star": (7019, 35, 79.54, 0.12),
    },
    "resnet56": {
        "cyc-sghmc": (6460, 21, 81.78, 0.08),
        "cyc-swag": (6486, 29, 81.60, 0.14),
        "ensemble": (6553, 15, 81.49, 0.09),
        "deo": (6534, 26, 81.72, 0.12),
        "deo-star": (6439, 32, 82.02, 0.15),
    },
}
LOGS = {  # the last epoch in the authors' published logs: accuracy / NLL
    ("resnet20", "ensemble"): "76.55 to 76.72 / 7842 to 7972",
    ("resnet20", "deo"): "76.31 / 8020",
    ("resnet20", "deo-star"): "77.35 / 7708",
    ("resnet56", "deo"): "81.64 / 6583",
    ("resnet56", "deo-star"): "81.96 / 6427",
}
NAMES = {
    "starts": "start networks",
    "ensemble": "mSGD×P10",
    "deo": "DEO-mSGD×P10",
    "deo-star": "DEO⋆-mSGD×P10",
    "cyc-sghmc": "cycSGHMC×T10",
    "cyc-swag": "cycSWAG×T10",
}
COMPARED = (
    ("deo-star", "deo"),
    ("deo", "ensemble"),
    ("deo-star", "ensemble"),
    ("deo-star", "cyc-sghmc"),
    ("deo-star", "cyc-swag"),
)
START_EPOCHS, EPOCHS, CYCLICAL_EPOCHS, CYCLES = 300, 500, 5000, 50
ROUND_TRIPS = {"deo": "6.0; Lemma 1 5.5", "deo-star": "11.2; Lemma 1 11.1"}  # per 100 epochs
