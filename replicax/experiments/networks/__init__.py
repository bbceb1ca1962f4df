"""Exchange schedules compared on small networks."""

from replicax.experiments.networks.study import STUDY as STUDY
