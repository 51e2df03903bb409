"""Measures random small networks on a device until a time budget is used: the data that its model is fitted on.

Each measured network is appended to a file at once. An interrupted measurement continues where it stopped.
"""

import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import torch

from foretell.core.errors import ForetellError, ImportDataError, WorkloadError
from foretell.core.workload import MeasuredStep, Workload
from foretell.measure.other_load import LoadMeter, OtherLoad
from foretell.workloads.capture import capture
from foretell.workloads.measurement_files import JsonLinesFile, Profile, from_record, to_record
from foretell.workloads.mixed_networks import sample_training_network
from foretell.workloads.network_layers import NetworkSpec, Sampler
from foretell.workloads.profile import name_device, profile
from foretell.workloads.step_options import InputSpec, StepOptions
from foretell.workloads.training_step import find_device

Given = ParamSpec("Given")
Result = TypeVar("Result")

_PRELOADED = ["torch._dynamo", "foretell.workloads.device_measurements"]  # the first is imported by every optimizer


def run_in_process(function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """Call a module-level function in a new process and return its result; its ForetellError is raised here.

    Raises:
        WorkloadError: The process ended without a result.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(theirs, function, args, kwargs), daemon=True)
    process.start()
    theirs.close()
    try:
        answer = ours.recv()
    except EOFError:
        process.join()
        raise WorkloadError(
            f"the measuring process ended without a result (exit code {process.exitcode}); "
            "it may have run out of memory. Use a smaller batch."
        ) from None
    finally:
        if process.is_alive():
            process.join(1.0)
        if process.is_alive():  # this process was interrupted
            process.terminate()
        process.join()
        ours.close()
    if isinstance(answer, ForetellError):
        raise answer
    return cast("Result", answer)


def _send_result(
    pipe: Connection, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it
    try:
        pipe.send(function(*args, **kwargs))
    except ForetellError as exc:
        pipe.send(WorkloadError(str(exc)))
    finally:
        pipe.close()


FORMAT = "foretell device"
VERSION = 1
BUDGET_S = 300.0
STEP_S = 0.15  # longest expected time of a step
LONGEST_S = 2.0  # longest accepted time of a step
BATCH = (2, 256)
MEASURED_S = 0.25  # of each network
BYTES_FOR_FLOPS = 8  # operations in the time that a byte takes, on a typical device


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNetworks:
    """The networks measured on a device so far."""

    device: str
    profiles: Mapping[int, Profile] = field(default_factory=dict)  # by the network's number
    seconds: float = 0.0  # spent on measuring
    tried: int = 0  # networks, including those that could not be measured

    @property
    def steps(self) -> list[MeasuredStep]:
        """All measured steps."""
        return [profile.step for _, profile in sorted(self.profiles.items())]

    @property
    def quiet_steps(self) -> list[MeasuredStep]:
        """Those that were measured while other processes hardly used the machine."""
        return [
            profile.step
            for _, profile in sorted(self.profiles.items())
            if not ((load := find_other_load(profile)) and load.is_disturbing)
        ]

    @property
    def loads(self) -> list[OtherLoad]:
        """What other processes used during each of them, where it is known."""
        return [load for _, profile in sorted(self.profiles.items()) if (load := find_other_load(profile))]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOrder:
    """The number of a random network, and how to measure it."""

    number: int
    seed: int
    flops_per_s: float  # of the device
    threads: int
    device: str  # as PyTorch names it
    seconds: float = MEASURED_S


def measure_in_process(order: NetworkOrder) -> Profile:
    """Measure a network; on a CPU in a process of its own.

    Raises:
        WorkloadError: A step takes too long or fails.
    """
    return run_in_process(measure_network, order) if order.device == "cpu" else measure_network(order)


def measure_networks(
    path: Path,
    *,
    budget_s: float = BUDGET_S,
    seed: int = 0,
    device: torch.device | None = None,
    measure: Callable[[NetworkOrder], Profile] = measure_in_process,
    on_progress: Callable[[MeasuredNetworks], None] = lambda _measured: None,
) -> MeasuredNetworks:
    """Measure networks until the budget is used; earlier calls on the same file count.

    Raises:
        ImportDataError: The file has another format, or is of another device.
        OutputError: The file cannot be written, or another process writes it.
    """
    device = device or find_device()
    file = DeviceFile(path)
    head = file.open(lambda: _build_head(device, seed))
    _check(head, device, seed, path)
    with file.locked():
        known = file.read()
        while known.seconds < budget_s:
            order = NetworkOrder(
                number=known.tried,
                seed=seed,
                flops_per_s=head["flops_per_s"],
                threads=head["threads"],
                device=str(device),
            )
            line = _build_line(order, measure)
            file.append(line)
            known = _add(known, line, path)
            on_progress(known)
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
    """One model needs the times of one device."""
    for name, value in _describe(device, seed).items():
        if head.get(name) != value:
            raise ImportDataError(f"{path}: measured with {name} {head.get(name)!r}, now {value!r}. Use another name.")


def measure_speed(device: torch.device) -> float:
    """Operations per second of a large matrix product, rounded to a power of two so that it is repeatable."""
    size = 512
    first = torch.randn(size, size, device=device)
    took = []
    for _ in range(8):
        begin = time.perf_counter()
        (first @ first).sum().item()
        took.append(time.perf_counter() - begin)
    return float(2 ** round(math.log2(2 * size**3 / min(took))))


def _build_line(order: NetworkOrder, measure: Callable[[NetworkOrder], Profile]) -> dict[str, Any]:
    """A profile, or the reason why there is none."""
    begin = time.perf_counter()
    line: dict[str, Any] = {"number": order.number}
    try:
        line["profile"] = to_record(measure(order))
    except (WorkloadError, torch.OutOfMemoryError) as exc:
        line["skipped"] = str(exc).splitlines()[0]
    return {**line, "seconds": round(time.perf_counter() - begin, 3)}


def measure_network(order: NetworkOrder) -> Profile:
    """Measure a network with a batch that suits the device.

    Raises:
        WorkloadError: A step takes too long.
    """
    torch.set_num_threads(order.threads)
    network = sample_training_network(order.number, seed=order.seed)
    options = StepOptions(loss=network.loss, optimizer=network.optimizer)
    batch = choose_batch(network, options, Sampler(order.seed * 1_000_003 + order.number), order.flops_per_s)
    torch.manual_seed(order.number)
    with LoadMeter(order.threads) as meter:
        found = profile(
            network.build(),
            [build_input(network, batch)],
            options=options,
            name=network.name,
            device=torch.device(order.device),
            seconds=order.seconds,
            longest_s=LONGEST_S,
        )
    load = {"busy_cores": f"{meter.load.busy_cores:.3f}", "cores": str(meter.load.cores)}
    return replace(found, facts={**found.facts, **load})


def find_other_load(profile: Profile) -> OtherLoad | None:
    """What other processes used while it was measured; none if it is not known, as of earlier versions."""
    facts = profile.facts
    try:
        return OtherLoad(
            busy_cores=float(facts["busy_cores"]), cores=int(facts["cores"]), threads=int(facts["threads"])
        )
    except (LookupError, ValueError):
        return None


def build_input(network: NetworkSpec, batch: int) -> InputSpec:
    """The input of a network."""
    dtype = "float32" if network.high is None else "int64"
    return InputSpec(shape=(batch, *network.example), dtype=dtype, high=network.high)


def choose_batch(network: NetworkSpec, options: StepOptions, sampler: Sampler, flops_per_s: float) -> int:
    """A random batch, limited so that a step does not take too long."""
    with torch.device("meta"):
        model = network.build()
    work = count_work(capture(model, [build_input(network, 2)], options=options)) / 2
    most = max(2, int(STEP_S * flops_per_s / work))  # batch norm needs two examples
    return max(2, min(sampler.size(*BATCH), most))


def count_work(workload: Workload) -> float:
    """Operations of a step; bytes moved count as operations where they take longer."""
    return sum(max(each.flops, each.bytes_moved * BYTES_FOR_FLOPS) for each in workload.operators)


class DeviceFile(JsonLinesFile):
    """A header, then a line for each network."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, format_=FORMAT, version=VERSION, command="foretell device learn")

    def read(self) -> MeasuredNetworks:
        """The networks in the file.

        Raises:
            ImportDataError: The file has another format.
        """
        head, lines = self.split()
        known = MeasuredNetworks(device=str(head.get("device", "")))
        for line in lines:
            known = _add(known, line, self.path)
        return known


def _add(known: MeasuredNetworks, line: Mapping[str, Any], path: Path) -> MeasuredNetworks:
    number = line.get("number")
    if not isinstance(number, int) or not ("profile" in line or "skipped" in line):
        raise ImportDataError(f"{path}: a line is not a measured network. Remove the line, or use another name.")
    profiles = dict(known.profiles)
    if "profile" in line:
        profiles[number] = from_record(line["profile"], source=f"{path}, network {number}")
    return MeasuredNetworks(
        device=known.device,
        profiles=profiles,
        seconds=known.seconds + float(line.get("seconds", 0.0)),
        tried=max(known.tried, number + 1),
    )
