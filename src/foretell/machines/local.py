"""This machine as a site."""

from dataclasses import replace
from typing import Any

from foretell.entities.run import BENCH_FIGURES, Machine
from foretell.entities.site import NodeType, Site
from foretell.errors import Mistake, SiteError

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
