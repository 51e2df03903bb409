"""An iteration laid out in time obeys what bytes, links and operators say."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.contracts.consumption import build_workload

from foretell.core.gradients import find_buckets
from foretell.core.workload import StepPhase
from foretell.distributed.consumption import Case, Setting, Strategy
from foretell.distributed.timeline import IN_FLIGHT_BYTES, Costs, Timeline, lay_out

FREE = Costs(efficiency=1.0, message_s=0.0, server_s_per_byte=0.0, slowdown=1.0)
BYTES = 4 * 8 * 512**2  # of all gradients
SLOW, FAST = 1e6, 1e12  # bytes a second


def ask(setting: Setting, *, operator_s: float = 1e-3) -> Case:
    workload = build_workload(layers=8, width=512, batch=32)
    return Case(workload=workload, setting=setting, operator_s=np.full(len(workload.operators), operator_s))


def lay(setting: Setting, *, operator_s: float = 1e-3, costs: Costs = FREE) -> Timeline:
    return lay_out(ask(setting, operator_s=operator_s), costs)


def reduce(workers: int, link: float | None, **options: float) -> Setting:
    return Setting(workers=workers, link_bytes_per_s=link, **options)  # type: ignore[arg-type]


def serve(workers: int, servers: int, link: float, *, synchronous: bool = True) -> Setting:
    return Setting(
        strategy=Strategy.SERVERS, workers=workers, servers=servers, link_bytes_per_s=link, synchronous=synchronous
    )


def test_a_single_worker_only_computes() -> None:
    line = lay(reduce(1, SLOW))
    assert line.iteration_s == pytest.approx(1e-3 * len(ask(reduce(1, SLOW)).operator_s))
    assert (line.transmit_bytes, line.exposed_s, line.buckets) == (0, 0, 0)


def test_half_a_core_takes_twice_as_long() -> None:
    assert lay(reduce(1, SLOW, share=0.5)).iteration_s == pytest.approx(2 * lay(reduce(1, SLOW)).iteration_s)


@pytest.mark.parametrize(("workers", "rounds"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_a_ring_moves_each_byte_almost_twice(workers: int, rounds: float) -> None:
    line = lay(reduce(workers, SLOW))
    assert line.transmit_bytes == pytest.approx(rounds * BYTES)
    assert line.receive_bytes == line.transmit_bytes


def test_a_slow_link_is_all_that_counts() -> None:
    line = lay(reduce(2, SLOW), operator_s=1e-9)
    assert line.iteration_s == pytest.approx(BYTES / SLOW, rel=1e-3)
    assert lay(reduce(2, 2 * SLOW), operator_s=1e-9).iteration_s == pytest.approx(line.iteration_s / 2, rel=1e-3)


def test_a_fast_link_costs_nothing() -> None:
    assert lay(reduce(4, FAST)).iteration_s == pytest.approx(lay(reduce(1, FAST)).iteration_s, rel=1e-3)


def test_without_a_link_a_fast_one_is_used() -> None:
    assert lay(reduce(2, None)).iteration_s < lay(reduce(2, 1e7)).iteration_s


def test_compute_hides_communication() -> None:
    """Less is exposed than is sent, and never more than all of it."""
    line = lay(reduce(2, BYTES / 0.01))
    assert 0 < line.exposed_s < line.transmit_s


def test_gradients_that_are_ready_late_hide_nothing() -> None:
    case = ask(reduce(2, BYTES / 0.01))
    last = len(case.workload.operators) - 1
    late = tuple(replace(gradient, ready=last) for gradient in case.workload.gradients)
    line = lay_out(replace(case, workload=replace(case.workload, gradients=late)), FREE)
    assert line.exposed_s > lay(reduce(2, BYTES / 0.01)).exposed_s


def test_workers_share_a_servers_link() -> None:
    one, two, apart = (lay(serve(*counts, SLOW), operator_s=1e-9) for counts in ((1, 1), (2, 1), (2, 2)))
    assert one.iteration_s == pytest.approx(2 * BYTES / SLOW, rel=1e-3)  # there and back
    assert two.iteration_s == pytest.approx(2 * one.iteration_s, rel=1e-3)
    assert apart.iteration_s == pytest.approx(one.iteration_s, rel=1e-3)


def test_servers_hide_nothing() -> None:
    line = lay(serve(1, 1, BYTES / 0.01))
    assert line.exposed_s == pytest.approx(0.02)


def test_who_does_not_wait_for_others_is_not_slower() -> None:
    for link in (SLOW, BYTES / 0.01, FAST):
        eager, waiting = (lay(serve(4, 1, link, synchronous=synchronous)) for synchronous in (False, True))
        assert eager.iteration_s <= waiting.iteration_s


@pytest.mark.parametrize(
    "costs",
    [
        replace(FREE, efficiency=0.5),
        replace(FREE, message_s=1e-2),
        replace(FREE, slowdown=1.5),
    ],
)
@pytest.mark.parametrize("setting", [reduce(2, 1e8), serve(2, 1, 1e8)])
def test_each_cost_makes_it_longer(setting: Setting, costs: Costs) -> None:
    assert lay(setting, costs=costs).iteration_s > lay(setting).iteration_s


def test_a_servers_own_work_makes_it_longer() -> None:
    assert (
        lay(serve(2, 1, 1e8), costs=replace(FREE, server_s_per_byte=1e-8)).iteration_s
        > lay(serve(2, 1, 1e8)).iteration_s
    )


@pytest.mark.parametrize("setting", [reduce(2, 1e8), serve(2, 1, 1e8)])
def test_a_workers_own_part_in_communication_is_compute(setting: Setting) -> None:
    alone, with_own = lay(setting), lay_out(ask(setting), FREE, 0.03)
    assert with_own.compute_s == pytest.approx(alone.compute_s + 0.03)
    assert with_own.iteration_s > alone.iteration_s


def test_a_networks_queues_take_some_before_senders_to_one_server_feel_each_other() -> None:
    lines = []
    for width in (64, 2048):
        workload = build_workload(layers=2, width=width, batch=32)
        case = Case(workload=workload, setting=serve(2, 1, 1e8), operator_s=np.zeros(len(workload.operators)))
        lines.append(lay_out(case, FREE))
    few, many = lines
    assert few.transmit_bytes < IN_FLIGHT_BYTES < many.transmit_bytes
    assert few.transmit_s == pytest.approx(few.receive_s / 2)
    assert many.transmit_s == pytest.approx(many.receive_s - IN_FLIGHT_BYTES / 1e8)


def test_servers_of_workers_that_do_not_wait_are_busy_all_the_time_at_most() -> None:
    """A worker's iteration is its own way around, or the turns of all workers at what they share."""
    for workers in (1, 2, 8, 64):
        for link in (SLOW, FAST):
            costs = replace(FREE, server_s_per_byte=1e-9, message_s=1e-3)
            line = lay(serve(workers, 2, link, synchronous=False), costs=costs)
            served = BYTES * 1e-9
            around = line.compute_s + line.transmit_s + line.receive_s + served
            expected = max(around, workers / 2 * BYTES / link, workers * served)
            assert line.iteration_s == pytest.approx(expected, rel=1e-9)


def test_a_ring_sends_buckets_in_turn_while_gradients_become_ready() -> None:
    """By the closed formula: a bucket begins when it is full and the one before has been sent."""
    for link in (BYTES / 0.02, BYTES / 0.002, FAST):
        case = ask(reduce(4, link))
        phases = Counter(operator.phase for operator in case.workload.operators)
        sent = 0.0
        for bucket in find_buckets(case.workload):
            filled = 1e-3 * (bucket.ready + 1 - phases[StepPhase.FORWARD])
            sent = max(sent, filled) + 1.5 * bucket.bytes_ / link
        backward = max(1e-3 * phases[StepPhase.BACKWARD], sent)
        expected = 1e-3 * (phases[StepPhase.FORWARD] + phases[StepPhase.UPDATE]) + backward
        assert lay_out(case, FREE).iteration_s == pytest.approx(expected)


def test_the_host_launches_the_update_of_a_gpu_while_it_waits() -> None:
    case = ask(reduce(2, SLOW), operator_s=1e-9)
    update = np.array([each.phase is StepPhase.UPDATE for each in case.workload.operators])
    slow_host = replace(case, operator_s=case.operator_s + update, busy_s=case.operator_s)
    waiting, alone = lay_out(slow_host, FREE), lay_out(replace(slow_host, setting=reduce(1, SLOW)), FREE)
    assert alone.iteration_s > 1.0
    assert waiting.iteration_s == pytest.approx(lay_out(case, FREE).iteration_s)
