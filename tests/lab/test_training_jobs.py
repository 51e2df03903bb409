"""Jobs to measure: always the same for a number, and of a size that suits the link."""

from dataclasses import replace

import pytest
from lab.training_jobs import TRANSFER_S, draw_job

from foretell.distributed.consumption import Setting, Strategy
from foretell.distributed.measured_jobs import capture_network, find_family
from foretell.workloads.random_networks import sample_network

SPEED = 2.0**33
SETTING = Setting(strategy=Strategy.SERVERS, workers=2, servers=1, link_bytes_per_s=2.5e7, device="core", share=0.5)


def test_a_number_draws_the_same_job_each_time() -> None:
    first, again = (draw_job(3, SETTING, seed=7, flops_per_s=SPEED) for _ in range(2))
    assert first == again
    assert first.setting == SETTING
    assert draw_job(4, SETTING, seed=7, flops_per_s=SPEED).network != first.network


def test_families_take_turns() -> None:
    names = [find_family(number, seed=7) for number in range(20)]
    assert len(set(names)) > 4
    assert "" not in names


@pytest.mark.parametrize("link", [2.5e7, 1e8])
def test_gradients_take_a_while_on_the_link(link: float) -> None:
    setting = replace(SETTING, link_bytes_per_s=link)
    job = draw_job(1, setting, seed=7, flops_per_s=SPEED)
    network = sample_network(job.network.number, seed=job.network.seed)
    seconds = sum(gradient.bytes_ for gradient in capture_network(network, job.batch).gradients) / link
    low, high = TRANSFER_S
    assert low <= seconds <= high


def test_a_faster_core_gets_a_larger_batch() -> None:
    slow, fast = (draw_job(1, SETTING, seed=7, flops_per_s=speed).batch for speed in (2.0**30, 2.0**36))
    assert slow < fast
