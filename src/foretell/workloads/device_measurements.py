"""A device's training data: random small networks, one after another, for as long as there is time.

Each finished network is one line of a file at once, so that nothing is lost when it is stopped; what a file has is not
measured again.
"""

import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import torch

from foretell.core.errors import ForetellError, ImportDataError, WorkloadError
from foretell.core.workload import MeasuredStep, Workload
from foretell.workloads.capture import capture
from foretell.workloads.device_exercises import draw_exercise
from foretell.workloads.json_lines import LinesFile
from foretell.workloads.profile import name_device, profile
from foretell.workloads.profile_files import Profile, from_record, to_record
from foretell.workloads.random_networks import Draw, Network
from foretell.workloads.real_step import find_device
from foretell.workloads.step_options import InputSpec, StepOptions

Given = ParamSpec("Given")
Result = TypeVar("Result")

_PRELOADED = ["torch._dynamo", "foretell.workloads.device_measurements"]  # the first is what any optimizer imports


def run_apart(function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """What a function of a module gives back; an error of ours is raised here, too.

    Raises:
        WorkloadError: The process ended before it answered.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, function, args, kwargs), daemon=True)
    process.start()
    theirs.close()
    try:
        answer = ours.recv()
    except EOFError:
        process.join()
        raise WorkloadError(
            f"the process that measured ended without an answer (exit code {process.exitcode}); "
            "it may have had too little memory. Use a smaller batch."
        ) from None
    finally:
        if process.is_alive():
            process.join(1.0)
        if process.is_alive():  # we were interrupted
            process.terminate()
        process.join()
        ours.close()
    if isinstance(answer, ForetellError):
        raise answer
    return cast("Result", answer)


def _answer(
    pipe: Connection, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked decides
    try:
        pipe.send(function(*args, **kwargs))
    except ForetellError as exc:
        pipe.send(WorkloadError(str(exc)))
    finally:
        pipe.close()


FORMAT = "foretell device"
VERSION = 1
BUDGET_S = 300.0
STEP_S = 0.15  # that steps are meant to take at most
LONGEST_S = 2.0
BATCH = (2, 256)
MEASURED_S = 0.25  # of each network
BYTES_FOR_FLOPS = 8  # operations in the time of moving a byte, about, on any device


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What is known of a device so far."""

    device: str
    profiles: Mapping[int, Profile] = field(default_factory=dict)  # by the network's number
    seconds: float = 0.0  # that measuring took
    tried: int = 0  # networks, those that could not be measured among them

    @property
    def steps(self) -> list[MeasuredStep]:
        """What a model learns from."""
        return [profile.step for _, profile in sorted(self.profiles.items())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which network of the endless row is to be measured, and how."""

    number: int
    seed: int
    flops_per_s: float  # of the device
    threads: int
    device: str  # PyTorch's word
    seconds: float = MEASURED_S


def measure_apart(order: Order) -> Profile:
    """The network, measured in a process of its own where the host is the device.

    Raises:
        WorkloadError: A step takes too long, or does not end well.
    """
    return run_apart(measure_network, order) if order.device == "cpu" else measure_network(order)


def learn(
    path: Path,
    *,
    budget_s: float = BUDGET_S,
    seed: int = 0,
    device: torch.device | None = None,
    measure: Callable[[Order], Profile] = measure_apart,
    tell: Callable[[Learned], None] = lambda _learned: None,
) -> Learned:
    """Measure networks until the budget is spent, all calls on one file together.

    Raises:
        ImportDataError: The file is none of ours, or of another device.
        OutputError: The file cannot be written, or somebody else does so.
    """
    device = device or find_device()
    file = LearningFile(path)
    head = file.open(lambda: _build_head(device, seed))
    _check(head, device, seed, path)
    with file.alone():
        known = file.read()
        while known.seconds < budget_s:
            order = Order(
                number=known.tried,
                seed=seed,
                flops_per_s=head["flops_per_s"],
                threads=head["threads"],
                device=str(device),
            )
            line = _build_line(order, measure)
            file.append(line)
            known = _add(known, line, path)
            tell(known)
    return known


def _build_head(device: torch.device, seed: int) -> dict[str, Any]:
    return {**_describe(device, seed), "flops_per_s": measure_speed(device)}


def _describe(device: torch.device, seed: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "device": name_device(device),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "seed": seed,
    }


def _check(head: Mapping[str, Any], device: torch.device, seed: int, path: Path) -> None:
    """Times of different devices are not for one model."""
    for name, value in _describe(device, seed).items():
        if head.get(name) != value:
            raise ImportDataError(
                f"{path}: found {name} {head.get(name)!r}; expected {value!r}, as it is now. Name another file."
            )


def measure_speed(device: torch.device) -> float:
    """Operations a second of a large product of matrices, to the next power of two: the same each time."""
    size = 512
    first = torch.randn(size, size, device=device)
    took = []
    for _ in range(8):
        begin = time.perf_counter()
        (first @ first).sum().item()
        took.append(time.perf_counter() - begin)
    return float(2 ** round(math.log2(2 * size**3 / min(took))))


def _build_line(order: Order, measure: Callable[[Order], Profile]) -> dict[str, Any]:
    """A profile, or why there is none."""
    begin = time.perf_counter()
    line: dict[str, Any] = {"number": order.number}
    try:
        line["profile"] = to_record(measure(order))
    except (WorkloadError, torch.OutOfMemoryError) as exc:
        line["skipped"] = str(exc).splitlines()[0]
    return {**line, "seconds": round(time.perf_counter() - begin, 3)}


def measure_network(order: Order) -> Profile:
    """The network with a batch that suits the device.

    Raises:
        WorkloadError: A step takes too long.
    """
    torch.set_num_threads(order.threads)
    network = draw_exercise(order.number, seed=order.seed)
    options = StepOptions(loss=network.loss, optimizer=network.optimizer)
    batch = choose_batch(network, options, Draw(order.seed * 1_000_003 + order.number), order.flops_per_s)
    torch.manual_seed(order.number)
    return profile(
        network.build(),
        [build_input(network, batch)],
        options=options,
        name=network.name,
        device=torch.device(order.device),
        seconds=order.seconds,
        longest_s=LONGEST_S,
    )


def build_input(network: Network, batch: int) -> InputSpec:
    """What the network is given."""
    dtype = "float32" if network.high is None else "int64"
    return InputSpec(shape=(batch, *network.example), dtype=dtype, high=network.high)


def choose_batch(network: Network, options: StepOptions, draw: Draw, flops_per_s: float) -> int:
    """A batch that is drawn, or the largest with which a step should not take too long."""
    with torch.device("meta"):
        model = network.build()
    work = find_work(capture(model, [build_input(network, 2)], options=options)) / 2
    most = max(2, int(STEP_S * flops_per_s / work))  # one alone is too few for some norms
    return max(2, min(draw.size(*BATCH), most))


def find_work(workload: Workload) -> float:
    """Operations of a step, or moved bytes in their stead where those take longer."""
    return sum(max(each.flops, each.bytes_moved * BYTES_FOR_FLOPS) for each in workload.operators)


class LearningFile(LinesFile):
    """A head, then a line for each network."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, format_=FORMAT, version=VERSION, maker="foretell device learn")

    def read(self) -> Learned:
        """What was measured.

        Raises:
            ImportDataError: The file holds something else.
        """
        head, lines = self.split()
        known = Learned(device=str(head.get("device", "")))
        for line in lines:
            known = _add(known, line, self.path)
        return known


def _add(known: Learned, line: Mapping[str, Any], path: Path) -> Learned:
    number = line.get("number")
    if not isinstance(number, int) or not ("profile" in line or "skipped" in line):
        raise ImportDataError(f"{path}: a line that is no measured network. Name another file, or remove the line.")
    profiles = dict(known.profiles)
    if "profile" in line:
        profiles[number] = from_record(line["profile"], source=f"{path}, network {number}")
    return Learned(
        device=known.device,
        profiles=profiles,
        seconds=known.seconds + float(line.get("seconds", 0.0)),
        tried=max(known.tried, number + 1),
    )
