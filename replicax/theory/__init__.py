"""Closed forms of the paper and a planner built on them: numbers in, numbers out, no JAX."""

from replicax.theory.noise import (
    ReplicaCount,
    deterministic_swap_probability,
    optimal_buffer,
    optimal_num_replicas,
    swap_probability_under_noise,
)
from replicax.theory.planner import plan
from replicax.theory.round_trips import (
    optimal_window,
    round_trip_rate,
    round_trip_time,
    round_trip_time_adj,
    round_trip_time_seo,
)
