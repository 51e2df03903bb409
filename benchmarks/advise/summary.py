"""Errors of predicted trainings: all together, and by what they may depend on."""

from collections.abc import Callable, Sequence

from benchmarks.advise.published import Compared, ComparedJob
from benchmarks.advise.results import Result, judge

_MIXED = ("fp16", "pure-fp16", "bf16", "pure-bf16")
_FEW_CASES = 3
_DATA_SHARE = 0.1  # of a step, in which GPUs wait for data


def summarize(steps: Sequence[Compared], jobs: Sequence[ComparedJob]) -> list[Result]:
    """All, each source, its networks, and numbers of GPUs."""
    everything: list[Compared | ComparedJob] = [*steps, *jobs]
    found = judge("all", "steps and jobs", everything, has_goal=True)
    for source in sorted({each.row.source for each in steps}):
        own = [each for each in steps if each.row.source == source]
        found += judge(source, "all steps", own, has_goal=True)
        for network in sorted({each.row.network for each in own}):
            found += judge(source, network, [each for each in own if each.row.network == network])
    found += _judge_jobs(jobs)
    for name, chooses in _GROUPS:
        found += judge("steps", name, [each for each in steps if chooses(each)])
    return found


def _judge_jobs(jobs: Sequence[ComparedJob]) -> list[Result]:
    waiting = [each for each in jobs if each.waiting >= _DATA_SHARE]
    busy = [each for each in jobs if each.waiting < _DATA_SHARE]
    note = f"GPUs wait for data for {100 * _DATA_SHARE:g} % or more"
    return [
        *judge("whole jobs", "all", jobs, has_goal=True),
        *judge("whole jobs", "bound by GPUs", busy),
        *judge("whole jobs", "bound by loading", waiting, note=note),
    ]


_GROUPS: tuple[tuple[str, Callable[[Compared], bool]], ...] = (
    ("one GPU", lambda each: each.row.gpus == 1),
    ("one node", lambda each: 1 < each.row.gpus <= each.row.gpus_per_node),
    ("several nodes", lambda each: each.row.gpus > each.row.gpus_per_node),
    ("half precision", lambda each: each.row.precision in _MIXED),
    ("TF32", lambda each: each.row.precision == "tf32"),
    ("single precision", lambda each: each.row.precision == "fp32"),
)
