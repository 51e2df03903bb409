"""Which distributed trainings are measured: random networks in turn through settings, always the same for a number."""

import math
from functools import cache

import torch

from foretell.core.workload import Workload
from foretell.distributed.consumption import Setting
from foretell.distributed.training_jobs import TrainedNetwork, TrainingJob
from foretell.workloads.capture import capture
from foretell.workloads.device_measurements import build_input, count_work, measure_speed
from foretell.workloads.network_layers import NetworkSpec, Sampler
from foretell.workloads.random_networks import FAMILIES, sample_network
from foretell.workloads.step_options import StepOptions

COMPUTE_S = (0.015, 0.2)  # of an iteration at the device's best rate; really it is some times longer
TRANSFER_S = (0.015, 0.12)  # that a gradient takes on the link: more than a sample, less than all of the time
BATCH = (2, 512)
TRIES = 60


def draw_job(number: int, setting: Setting, *, seed: int, flops_per_s: float | None = None) -> TrainingJob:
    """The job of a number: a network whose gradients take a while on the setting's link, and a batch to go with it."""
    flops_per_s = flops_per_s or _measure_core()
    draw = Sampler(seed * 1_000_003 + number)
    places = [number + FAMILIES * 1000 * attempt for attempt in range(TRIES)]  # the same kind of network
    found = min(places, key=lambda place: _miss(sample_network(place, seed=seed), setting))
    network = sample_network(found, seed=seed)
    return TrainingJob(
        network=TrainedNetwork(number=found, seed=seed),
        batch=_choose_batch(network, draw, flops_per_s * setting.share),
        setting=setting,
    )


@cache
def _measure_core() -> float:
    """Operations a second of one of this machine's cores: a power of two, so that the same job is drawn each time."""
    measured = measure_speed(torch.device("cpu")) / torch.get_num_threads()
    return float(2 ** round(math.log2(measured)))


def find_family(number: int, *, seed: int) -> str:
    """The kind of a random network."""
    return sample_network(number, seed=seed).name.partition("-")[0]


def read_job(job: TrainingJob) -> Workload:
    """The operators of a random network's step."""
    network = sample_network(job.network.number, seed=job.network.seed)
    return _capture(network, job.batch)


def _miss(network: NetworkSpec, setting: Setting) -> float:
    """By how much a network's gradients are too small or too large for a link; nothing where they suit it."""
    if setting.link_bytes_per_s is None:
        return 0.0
    with torch.device("meta"):
        parameters = sum(each.numel() for each in network.build().parameters())
    transfer_s = 4 * parameters / setting.link_bytes_per_s
    low, high = TRANSFER_S
    return max(0.0, low / transfer_s - 1, transfer_s / high - 1)


def _choose_batch(network: NetworkSpec, draw: Sampler, flops_per_s: float) -> int:
    work = count_work(_capture(network, BATCH[0])) / BATCH[0]
    return min(BATCH[1], max(BATCH[0], round(draw.real(*COMPUTE_S) * flops_per_s / work)))


def _capture(network: NetworkSpec, batch: int) -> Workload:
    with torch.device("meta"):
        model = network.build()
    options = StepOptions(loss=network.loss, optimizer=network.optimizer)
    return capture(model, [build_input(network, batch)], options=options, name=network.name)
