"""Round-trip times against Lemma 1."""

from replicax.experiments.round_trips.study import STUDY as STUDY
