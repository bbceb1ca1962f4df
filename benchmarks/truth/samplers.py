"""Other samplers by name: how each is run, and what one of its iterations is."""

from collections.abc import Callable
from typing import NamedTuple

from numpy_loop import deo_star
from peer import PeerRun
from peer_blackjax import nested_slices, sgld, tempered_smc
from peer_numpyro import nuts
from peer_tfp import replica_exchange


class Peer(NamedTuple):
    run: Callable[..., PeerRun]  # (target, seconds, seed=..., hottest=...)
    sees: str  # of a target
    iteration: str
    only: tuple[str, ...] | None = None  # targets that it can do; None: all


# Those that see all rows, and hold for any target: the page of truths.
PEERS: dict[str, Peer] = {
    "NumPyro NUTS": Peer(nuts, "exact gradients", "a transition of up to 1,023 leapfrog steps"),
    "TFP ReplicaExchangeMC": Peer(
        replica_exchange, "exact gradients", "8 leapfrog steps on every rung, and swaps"
    ),
    "BlackJAX tempered SMC": Peer(
        tempered_smc, "exact gradients", "a stage: 10 moves of 5 leapfrog steps of all particles"
    ),
}
# Those of the race alone.
MORE_PEERS: dict[str, Peer] = {
    "BlackJAX nested slices": Peer(
        nested_slices, "no gradients", "a step: a tenth of the live points are replaced"
    ),
    "BlackJAX SGLD": Peer(
        sgld, "noisy gradients", "a step of as many particles as replicax has replicas"
    ),
    "NumPy loop, DEO⋆": Peer(
        deo_star, "noisy gradients", "a step of 16 replicas, and swaps", only=("modes-25",)
    ),
}
