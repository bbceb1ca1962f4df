"""Closed forms of the paper and a planner built on them: numbers in, numbers out, no JAX."""

from replicax.theory.closed_forms import (
    ReplicaCount,
    deterministic_swap_probability,
    optimal_buffer,
    optimal_num_replicas,
    optimal_window,
    round_trip_rate,
    round_trip_time,
    round_trip_time_adj,
    round_trip_time_derivative,
    round_trip_time_seo,
    swap_probability_under_noise,
    swap_rate_under_noise,
    window_equation,
    window_equation_derivative,
)
from replicax.theory.planner import plan
