"""Rows in Parquet files, larger than memory: a logistic regression, exact draws.

Needs pyarrow: `pip install pyarrow`, then `python examples/parquet_rows.py [FOLDER] [ROWS]`. Files
are made in the folder if it has none.

A source is any object whose `iter()` gives all rows in blocks. Here a block is a batch of a file,
so that memory holds some of them, however many rows there are. The rows are read once for each
sweep and once before, some nine times in all; with `method=rx.sweeps(exact=False)` four to six.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import replicax as rx

COLUMNS = ["age", "income", "visits"]
SLOPES = np.array([0.8, -0.5, 0.3])
FILES = 4


class ParquetRows:
    """All rows of the Parquet files of a folder, in blocks: predictors and outcome."""

    def __init__(self, folder: Path, block_rows: int = 2**17) -> None:
        self.files = sorted(folder.glob("*.parquet"))
        self.block_rows = block_rows

    def __iter__(self):
        for file in self.files:
            read = pq.ParquetFile(file).iter_batches(self.block_rows, columns=[*COLUMNS, "bought"])
            for batch in read:
                x = np.stack([batch[name].to_numpy() for name in COLUMNS], axis=1)
                yield x.astype(np.float32), batch["bought"].to_numpy().astype(np.float32)

    def __len__(self) -> int:
        return sum(pq.ParquetFile(file).metadata.num_rows for file in self.files)


def write_files(folder: Path, num_rows: int) -> None:
    """Write files of customers, of whom some have bought something."""
    rng = np.random.default_rng(0)
    for number in range(FILES):
        x = rng.normal(size=(num_rows // FILES, len(COLUMNS)))
        bought = rng.random(len(x)) < 1 / (1 + np.exp(1 - x @ SLOPES))
        columns = dict(zip(COLUMNS, x.T)) | {"bought": bought.astype(np.int8)}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def log_likelihood(params, rows):
    x, bought = rows
    z = x @ params["slopes"] + params["intercept"]
    return bought * z - jax.nn.softplus(z)


def log_prior(params):
    return -0.5 * (jnp.sum(params["slopes"] ** 2) + params["intercept"] ** 2) / 9


def start(key):
    slopes = 2 * jax.random.normal(key, (len(COLUMNS),))
    return {"slopes": slopes, "intercept": jnp.zeros(())}


def main(folder: Path, num_rows: int) -> None:
    if not list(folder.glob("*.parquet")):
        write_files(folder, num_rows)
    rows = ParquetRows(folder)
    posterior = rx.sample(
        rx.bayesian(log_likelihood, log_prior, rows, num_rows=len(rows)), start, progress=True
    )
    print(posterior.summary())
    print("true slopes:", SLOPES)


if __name__ == "__main__":
    num_rows = int(float(sys.argv[2])) if len(sys.argv) > 2 else 1_000_000
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), num_rows)
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made), num_rows)
