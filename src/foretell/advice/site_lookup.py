"""Sites by name, and the allocations that a job could request there."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from foretell.advice.sites import get_site
from foretell.advice.sites import list_sites as list_known_sites
from foretell.core.errors import Mistake, NotFoundError, SiteError
from foretell.core.run import BENCH_FIGURES, Allocation, Machine
from foretell.core.site import NodeType, Site


def list_allocations(
    site: Site,
    *,
    cores: Collection[int] | None = None,
    gpus: Collection[int] | None = None,
    nodes: Collection[int] = (1,),
) -> list[tuple[NodeType, Allocation]]:
    """Every allocation that a job could request, with its node type; cores and GPUs are per node.

    Without ``cores``, these are the powers of two and the full node, and likewise for ``gpus``; the full node only if
    jobs get whole nodes. With ``cores``, they are the given counts that fit: a job may leave part of a whole node
    unused. Node types with GPUs are for jobs that use one.
    """
    return [
        (node, _build_allocation(node, cores=core_count, gpus=gpu_count, nodes=node_count))
        for node in site.node_types
        for node_count in _list_fitting(nodes, least=1, most=node.max_nodes)
        for gpu_count in _list_counts(
            gpus, least=_least_gpus(site, node), most=node.gpus, whole=node.gives_whole_nodes(node_count)
        )
        for core_count in _list_counts(cores, least=1, most=node.cores, whole=node.gives_whole_nodes(node_count))
    ]


def _build_allocation(node: NodeType, *, cores: int, gpus: int, nodes: int) -> Allocation:
    return Allocation(cores=cores, gpus=gpus, nodes=nodes, partition=node.partition, node_type=node.name)


def _least_gpus(site: Site, node: NodeType) -> int:
    idle_gpus_allowed = site.scheduler == "shell" and not node.whole_node
    return 0 if idle_gpus_allowed else min(1, node.gpus)


def _list_counts(wanted: Collection[int] | None, *, least: int, most: int, whole: bool) -> list[int]:
    if wanted is not None:
        return _list_fitting(wanted, least=least, most=most)
    return [most] if whole else _list_fitting([0, *_powers_of_two(most), most], least=least, most=most)


def _list_fitting(counts: Iterable[int], *, least: int, most: int) -> list[int]:
    return sorted({count for count in counts if least <= count <= most})


def _powers_of_two(most: int) -> list[int]:
    return [2**exponent for exponent in range(most.bit_length())]


LOCAL = "local"


def build_local_site(machine: Machine) -> Site:
    """The machine as detected: one node type, free, without a scheduler.

    Raises:
        SiteError: if its cores or its memory could not be detected.
    """
    if machine.cores is None or machine.memory_bytes is None:
        raise SiteError("this machine", _list_unknown(machine))
    node = NodeType(
        name=LOCAL,
        partition=LOCAL,
        cores=machine.cores,
        memory_bytes=machine.memory_bytes,
        gpus=machine.gpus,
        gpu_model=machine.gpu_model,
        cpu_model=machine.cpu_model,
        cpu_mhz=machine.cpu_mhz,
        architecture=str(machine.extra.get("architecture") or "") or None,
    )
    node = replace(node, **_find_bench(machine))
    title = f"This machine ({machine.hostname})" if machine.hostname else "This machine"
    return Site(name=LOCAL, title=title, scheduler="shell", node_types=(node,), source="detected on this machine")


def _find_bench(machine: Machine) -> dict[str, Any]:
    return {name: machine.extra[name] for name in ("bench_version", *BENCH_FIGURES) if name in machine.extra}


def _list_unknown(machine: Machine) -> list[Mistake]:
    facts = {"cores": machine.cores, "memory": machine.memory_bytes}
    remedy = "a number; describe this machine in a site file and pass --site-file"
    return [Mistake(place=name, found="nothing", expected=remedy) for name, value in facts.items() if value is None]


def find_site(name: str, *, files: Collection[Path] = ()) -> Site:
    """A site by its name: this machine, one of the catalogue, or one of the user's files.

    Raises:
        NotFoundError: if there is none of that name.
        SiteError: if a file has mistakes.
    """
    if name == LOCAL:
        from foretell.measure.machine import detect_machine

        return build_local_site(detect_machine())
    try:
        return get_site(name, extra_files=files)
    except NotFoundError as exc:
        if exc.kind != "site":
            raise
        hint = "Describe your own in a site file and pass --site-file."
        raise NotFoundError("site", name, known=(LOCAL, *exc.known), hint=hint) from None


def list_sites(*, files: Collection[Path] = ()) -> tuple[Site, ...]:
    """This machine, the catalogue, and the user's sites.

    Raises:
        SiteError: if a file has mistakes.
    """
    return (find_site(LOCAL), *list_known_sites(extra_files=files))


def discover_site(*, name: str | None = None, cluster: str | None = None) -> Site:
    """The Slurm cluster of this machine, or the federated one of that name, as a site without prices.

    Raises:
        SchedulerError: if Slurm is not installed, does not answer, or has no open partition.
    """
    from foretell.advice.site_discovery import build_site
    from foretell.schedulers.slurm.cluster import read_cluster

    return build_site(read_cluster(cluster=cluster), name=name, as_of=date.today(), elsewhere=cluster is not None)
