"""Recorded memory that the user's process wrote is read as it was written, or not at all."""

import copy
import json
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from tests.workloads.test_script_results import build_record, read

from foretell.core.errors import WorkloadError
from foretell.core.memory import Convolution, MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.workloads.memory_records import trace_from_record, trace_to_record


def build_trace() -> MemoryTrace:
    """A weight that is there from the beginning, and two activations in two steps."""
    convolution = Convolution(
        event=1,
        backward=False,
        images=(2, 3, 8, 8),
        filters=(4, 3, 3, 3),
        results=(2, 4, 6, 6),
        stride=(1, 1),
        dilation=(1, 1),
        groups=1,
        transposed=False,
        itemsize=4,
    )
    return MemoryTrace(
        name="train.py",
        batch=2,
        sizes=np.array([432, 1152, 1152]),
        kinds=np.array([MemoryKind.WEIGHTS, MemoryKind.ACTIVATIONS, MemoryKind.ACTIVATIONS]),
        owners=np.array([0, 1, 1]),
        events=np.array([2, -2, 3, -3]),
        places=np.array([1, 1, 1, 1]),
        owner_names=(("weight", "conv"), ("conv2d", "conv")),
        phases=((0, StepPhase.FORWARD), (1, StepPhase.BACKWARD), (2, StepPhase.FORWARD)),
        second=2,
        settings={"precision": "fp32"},
        parameters=108,
        length=None,
        repeated=("blocks.0", "blocks.1"),
        heads=(8, 2),
        notes=("a note",),
        convolutions=(convolution,),
    )


def test_trace_is_read_as_written() -> None:
    trace = build_trace()
    found = trace_from_record(json.loads(json.dumps(trace_to_record(trace))))
    for field in fields(MemoryTrace):
        assert np.array_equal(getattr(found, field.name), getattr(trace, field.name)), field.name


def test_memory_of_a_script_has_its_name() -> None:
    record = {**build_record(), "memory": trace_to_record(build_trace())}
    memory = read(json.dumps(record)).memory
    assert memory.name == "train.py"
    assert memory.sizes.tolist() == [432, 1152, 1152]
    assert read(json.dumps(build_record())).memory is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("sizes",), [432, 1152]),
        (("sizes",), [432, 1152, -1]),
        (("sizes",), [432, 1152, 2**60]),
        (("sizes",), [432, 1152, 2**80]),
        (("sizes",), [432, 1152, 1.5]),
        (("sizes",), [432, 1152, True]),
        (("sizes",), "many"),
        (("kinds",), [0, 5, 99]),
        (("kinds",), [0, 5, -1]),
        (("owners",), [0, 1, 2]),
        (("places",), [0, 0, 0]),
        (("places",), [0, 0, 0, 7]),
        (("owner_names",), [["weight"]]),
        (("events",), [2, -2, 3, -4]),
        (("events",), [2, -2, 3, 0]),
        (("events",), [2, 2, 3, -3]),
        (("events",), [2, -2, 3, -2]),
        (("events",), [-2, 2, 3, -3]),
        (("phases",), [[2, "forward"], [1, "backward"]]),
        (("phases",), [[5, "forward"]]),
        (("phases",), [[0, "sideways"]]),
        (("phases",), [[-1, "forward"]]),
        (("second",), 5),
        (("second",), None),
        (("batch",), -2),
        (("parameters",), "many"),
        (("length",), -1),
        (("heads",), [8, -2]),
        (("settings",), ["precision"]),
        (("convolutions",), [{}]),
        (("convolutions", 0, "groups"), 0),
        (("convolutions", 0, "event"), 9),
        (("convolutions", 0, "images"), [2, 3]),
        (("convolutions", 0, "stride"), [1, -1]),
        ((), "no trace"),
    ],
)
def test_what_is_no_trace_is_refused(path: tuple[Any, ...], value: object) -> None:
    record: dict[str, Any] = {**build_record(), "memory": copy.deepcopy(trace_to_record(build_trace()))}
    place: Any = record
    steps = ("memory", *path)
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    with pytest.raises(WorkloadError, match="is not a recorded step"):
        read(json.dumps(record))
