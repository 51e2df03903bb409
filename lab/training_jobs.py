"""Trainings to measure: which network, batch and setting, and what the first worker reports."""

import math
from dataclasses import dataclass
from functools import cache

import torch

from foretell.distributed.consumption import Setting
from foretell.distributed.measured_jobs import capture_network
from foretell.workloads.device_measurements import count_work, measure_speed
from foretell.workloads.network_layers import NetworkSpec, Sampler
from foretell.workloads.random_networks import FAMILIES, sample_network

COMPUTE_S = (0.015, 0.2)  # of an iteration at the device's best rate; in practice it is some times longer
TRANSFER_S = (0.015, 0.12)  # of the gradients on the link: more than a sample, less than the whole iteration
BATCH = (2, 512)
_DRAWS = 60  # networks tried to find one whose gradients suit the link


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedNetwork:
    """Which network is trained: a random one by number and seed, or a model's code."""

    number: int = 0
    seed: int = 0
    source: str = ""  # FILE.py:FACTORY
    inputs: tuple[str, ...] = ()  # of a model's code, as in --input
    arguments: tuple[tuple[str, object], ...] = ()  # of its factory; what JSON can hold
    optimizer: str = "sgd"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A network, a batch for each worker, a setting, and for how long it is sampled."""

    network: TrainedNetwork
    batch: int
    setting: Setting
    seconds: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What the first worker reports; times are of the monotonic clock."""

    alone_s: float  # an iteration without any communication
    began_s: tuple[float, ...]  # of each iteration, then the end of the last
    phases_s: tuple[float, float, float]  # medians: forward, backward, the rest
    others: float = 0.0  # cores used by other processes
    stolen: float = 0.0  # cores used by other virtual machines


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """A job that was measured, or why it failed."""

    number: int
    done: int
    total: int
    family: str = ""
    iteration_s: float | None = None
    disturbed: bool = False
    failed: str = ""


def draw_job(number: int, setting: Setting, *, seed: int, flops_per_s: float | None = None) -> TrainingJob:
    """The job of a number, always the same: a network whose gradients suit the link, and a batch that suits it."""
    flops_per_s = flops_per_s or _measure_core()
    draw = Sampler(seed * 1_000_003 + number)
    candidates = [number + FAMILIES * 1000 * attempt for attempt in range(_DRAWS)]  # the same kind of network
    best = min(candidates, key=lambda each: _measure_mismatch(sample_network(each, seed=seed), setting))
    return TrainingJob(
        network=TrainedNetwork(number=best, seed=seed),
        batch=_choose_batch(sample_network(best, seed=seed), draw, flops_per_s * setting.share),
        setting=setting,
    )


@cache
def _measure_core() -> float:
    """Operations a second of one core, rounded to a power of two so that each call draws the same job."""
    measured = measure_speed(torch.device("cpu")) / torch.get_num_threads()
    return float(2 ** round(math.log2(measured)))


def _measure_mismatch(network: NetworkSpec, setting: Setting) -> float:
    """By how much a network's gradients are too small or too large for the link; 0 where they suit it."""
    if setting.link_bytes_per_s is None:
        return 0.0
    with torch.device("meta"):
        parameters = sum(each.numel() for each in network.build().parameters())
    transfer_s = 4 * parameters / setting.link_bytes_per_s
    low, high = TRANSFER_S
    return max(0.0, low / transfer_s - 1, transfer_s / high - 1)


def _choose_batch(network: NetworkSpec, draw: Sampler, flops_per_s: float) -> int:
    work = count_work(capture_network(network, BATCH[0])) / BATCH[0]
    return min(BATCH[1], max(BATCH[0], round(draw.real(*COMPUTE_S) * flops_per_s / work)))
