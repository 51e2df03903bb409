"""One member of a distributed training: a worker or a parameter server.

Run as a script, it reads jobs from standard input, one JSON object a line, and forks for each: the time of a step
depends on what its process did before, and users train in new processes.
"""

import gc
import json
import os
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from itertools import repeat
from pathlib import Path
from typing import Any

import torch._dynamo
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from foretell.workloads.device_measurements import build_input
from foretell.workloads.model_loading import load_model
from foretell.workloads.optimizers import build_optimizer
from foretell.workloads.random_networks import sample_network
from foretell.workloads.step_options import InputSpec, StepOptions, parse_input, resize
from foretell.workloads.training_step import RealStep

GROUP_TIMEOUT = timedelta(seconds=60)
WARM_UP = 4  # iterations; DDP rebuilds its buckets after the first
ALONE = 5  # iterations without communication
FEWEST, MOST = 10, 80  # iterations that are measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A job as one member receives it."""

    network: dict[str, Any]
    batch: int
    strategy: str
    workers: int
    servers: int
    synchronous: bool
    seconds: float
    rank: int
    address: str  # of the first member
    port: int
    interface: str
    core: int | None = None  # to run on

    @property
    def members(self) -> int:
        return self.workers + self.servers


def main() -> None:
    """Run jobs until standard input ends."""
    torch.set_num_threads(1)
    _report(event="ready")
    for line in sys.stdin:
        member = Member(**json.loads(line))
        child = os.fork()
        if child == 0:
            sys.stdin.close()
            os._exit(_run(member))
        _report(event="started", pid=child)
        _, status = os.waitpid(child, 0)
        _report(event="ended", code=os.waitstatus_to_exitcode(status))


def _report(**facts: object) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


def _run(member: Member) -> int:
    try:
        take_part(member)
    except Exception as exc:
        _report(event="failed", why=f"{type(exc).__name__}: {exc}".splitlines()[0][:500])
        traceback.print_exc()
        return 1
    return 0


def take_part(member: Member) -> None:
    """Train with the others; the first worker reports the times."""
    if member.core is not None:
        os.sched_setaffinity(0, {member.core})
    torch.set_num_threads(1)
    torch.manual_seed(1)
    os.environ["GLOO_SOCKET_IFNAME"] = member.interface
    step = _build_step(member)
    gc.disable()  # its pauses are not the network's
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{member.address}:{member.port}",
        rank=member.rank,
        world_size=member.members,
        timeout=GROUP_TIMEOUT,
    )
    _train(member, step)
    dist.barrier()  # all members end together; the process group is not destroyed


def _build_step(member: Member) -> RealStep:
    model, inputs, options = _build_network(member)
    return RealStep(model, resize(inputs, member.batch), options, device=torch.device("cpu"))


def _build_network(member: Member) -> tuple[nn.Module, Sequence[InputSpec], StepOptions]:
    facts = member.network
    if not facts["source"]:
        network = sample_network(facts["number"], seed=facts["seed"])
        options = StepOptions(loss=network.loss, optimizer=network.optimizer)
        return network.build(), [build_input(network, member.batch)], options
    loaded = load_model(facts["source"], arguments=dict(facts["arguments"]), on_meta=False)
    inputs = [parse_input(text) for text in facts["inputs"]] or loaded.inputs
    return loaded.model, inputs, StepOptions(optimizer=facts["optimizer"])


def _train(member: Member, step: RealStep) -> None:
    if member.rank >= member.workers:
        server = _Server(step, member)
        server.serve(WARM_UP)
        iterations, used = _agree(0), time.process_time()
        server.serve(iterations)
        _report(event="used", cpu_s=time.process_time() - used)
        dist.barrier()
        return
    alone = _time_alone(step)
    iterate = _iterate_reduced(step, member) if member.strategy == "allreduce" else _iterate_served(step, member)
    begin = time.monotonic()
    for _ in range(WARM_UP):
        iterate()
    took = (time.monotonic() - begin) / WARM_UP
    iterations = _agree(min(MOST, max(FEWEST, round(member.seconds / took))))
    if member.rank == 0:
        _report(event="began", iterations=iterations)
    used, busy = time.process_time(), _read_busy()
    moments = [iterate() for _ in range(iterations)]
    end = time.monotonic()
    _report(event="used", cpu_s=time.process_time() - used)
    if member.rank == 0:
        machine = {name: after - busy[name] for name, after in _read_busy().items()}
        _report(event="trained", **_describe(alone, moments, end), **machine)
    dist.barrier()


def _read_busy() -> dict[str, float]:
    """Seconds that the CPUs were busy since boot, and that other virtual machines used them."""
    with Path("/proc/stat").open("rb") as file:
        user, nice, system, _idle, _wait, interrupt, soft, stolen = map(int, file.readline().split()[1:9])
    ticks = os.sysconf("SC_CLK_TCK")
    return {"busy_s": (user + nice + system + interrupt + soft) / ticks, "stolen_s": stolen / ticks}


def _agree(iterations: int) -> int:
    """The first worker's number."""
    agreed = torch.tensor([iterations])
    dist.broadcast(agreed, 0)
    return int(agreed)


def _time_alone(step: RealStep) -> float:
    """The median iteration without communication, while the other workers do the same."""
    step.run()
    took = []
    for _ in range(ALONE):
        begin = time.monotonic()
        step.run()
        took.append(time.monotonic() - begin)
    return statistics.median(took)


Moments = tuple[float, float, float]  # the begin, the end of forward, the end of backward


def _describe(alone: float, moments: Sequence[Moments], end: float) -> dict[str, object]:
    begins = [*(moment[0] for moment in moments), end]
    rest = [after - moment[2] for moment, after in zip(moments, begins[1:], strict=True)]
    phases = [
        statistics.median(moment[1] - moment[0] for moment in moments),
        statistics.median(moment[2] - moment[1] for moment in moments),
        statistics.median(rest),
    ]
    return {"alone_s": alone, "began_s": begins, "phases_s": phases}


# All-reduce by PyTorch's DistributedDataParallel


def _iterate_reduced(step: RealStep, member: Member) -> Callable[[], Moments]:
    if member.workers > 1:
        step.model = DistributedDataParallel(step.model)

    def iterate() -> Moments:
        moments = _compute_gradients(step)
        step.update()
        return moments

    return iterate


def _compute_gradients(step: RealStep) -> Moments:
    begin = time.monotonic()
    step.zero()
    loss = step.forward()
    forward = time.monotonic()
    step.backward(loss)
    return begin, forward, time.monotonic()


# Parameter servers: gradients are sent after the backward phase, parameters come back


def _iterate_served(step: RealStep, member: Member) -> Callable[[], Moments]:
    shards = _split(_list_parameters(step.model), member.servers)
    servers = range(member.workers, member.members)
    buffers = [torch.empty(sum(each.numel() for each in shard)) for shard in shards]

    def iterate() -> Moments:
        moments = _compute_gradients(step)
        sent = [dist.isend(_join(_get_gradients(shard)), server) for shard, server in zip(shards, servers, strict=True)]
        received = [dist.irecv(buffer, server) for buffer, server in zip(buffers, servers, strict=True)]
        _wait([*sent, *received])
        for shard, buffer in zip(shards, buffers, strict=True):
            _spread(buffer, shard)
        return moments

    return iterate


class _Server:
    """Holds a part of the parameters and updates it with the workers' gradients."""

    def __init__(self, step: RealStep, member: Member) -> None:
        shards = _split(_list_parameters(step.model), member.servers)
        self._shard = shards[member.rank - member.workers]
        self._optimizer = build_optimizer(self._shard, step.options)
        self._workers = range(member.workers)
        size = sum(each.numel() for each in self._shard)
        self._buffers = [torch.empty(size) for _ in self._workers]
        self._synchronous = member.synchronous
        self._lock = threading.Lock()
        for each in self._shard:
            each.grad = torch.zeros_like(each)

    def serve(self, iterations: int) -> None:
        """Serve so many iterations of each worker."""
        if self._synchronous:
            self._serve_all(iterations)
        else:
            with ThreadPoolExecutor(len(self._workers)) as threads:
                list(threads.map(self._serve_one, self._workers, repeat(iterations)))

    def _serve_one(self, worker: int, iterations: int) -> None:
        for _ in range(iterations):
            dist.recv(self._buffers[worker], worker)
            with self._lock:
                updated = self._update(self._buffers[worker])
            dist.send(updated, worker)

    def _serve_all(self, iterations: int) -> None:
        for _ in range(iterations):
            _wait([dist.irecv(buffer, worker) for buffer, worker in zip(self._buffers, self._workers, strict=True)])
            for other in self._buffers[1:]:
                self._buffers[0].add_(other)
            updated = self._update(self._buffers[0].div_(len(self._workers)))
            _wait([dist.isend(updated, worker) for worker in self._workers])

    def _update(self, gradients: Tensor) -> Tensor:
        _spread(gradients, _get_gradients(self._shard))
        self._optimizer.step()
        return _join(self._shard)


def _list_parameters(model: nn.Module) -> list[nn.Parameter]:
    return [each for each in model.parameters() if each.requires_grad]


def _split(parameters: Sequence[nn.Parameter], servers: int) -> list[list[nn.Parameter]]:
    """Parts of about the same size, the largest parameter first."""
    shards: list[list[nn.Parameter]] = [[] for _ in range(servers)]
    sizes = [0] * servers
    for parameter in sorted(parameters, key=Tensor.numel, reverse=True):
        least = sizes.index(min(sizes))
        shards[least].append(parameter)
        sizes[least] += parameter.numel()
    return shards


def _get_gradients(shard: Iterable[nn.Parameter]) -> list[Tensor]:
    return [each.grad if each.grad is not None else torch.zeros_like(each) for each in shard]


def _join(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.detach().reshape(-1) for each in tensors]) if tensors else torch.empty(0)


def _spread(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    parts = torch.split(flat, [each.numel() for each in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.detach().copy_(part.view_as(tensor))


def _wait(works: Iterable[Any]) -> None:
    for work in works:
        work.wait()


if __name__ == "__main__":
    main()
