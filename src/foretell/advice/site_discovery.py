"""A Slurm cluster as a site: node types and limits are read from Slurm, prices are left to fill in."""

import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from decimal import Decimal
from itertools import chain, count
from typing import Any

from foretell.advice.sites import NAME, NODE_KEYS, SITE_KEYS, Key
from foretell.core.errors import SchedulerError
from foretell.core.site import NodeType, Site
from foretell.core.units import render_bytes
from foretell.schedulers.slurm.cluster import Cluster, NodeGroup, Partition

_LONGEST_NAME = 64
_LONGEST_WALLTIME_S = 366 * 86400  # the longest that a site file allows; more counts as no limit
_UNKNOWN_MEMORY = 2**20  # RealMemory=1, Slurm's default
_PRICES = """\
# What an hour costs. Take the # away and fill in one of the two; "currency" of the site is USD if it is not given.
# billing = "core-hours"
# price_per_core_h = 0.003  # fill in
# price_per_gpu_h = 0.09    # fill in
#
# billing = "node-hours"
# price_per_node_h = 1      # fill in"""


def build_site(cluster: Cluster, *, name: str | None = None, as_of: date, elsewhere: bool = False) -> Site:
    """The cluster as a site without prices: a node type for each partition that is open to users.

    It is the most common kind of node of the partition; if some have GPUs and some not, the most common of each.
    The notes list other kinds of nodes, and partitions that were left out.
    ``elsewhere``: jobs are submitted from a machine of another cluster, so scripts must name it.

    Raises:
        SchedulerError: if there is no such partition.
    """
    used = [partition for partition in cluster.partitions if not _why_not(partition)]
    if not used:
        raise SchedulerError(f"cluster {cluster.name!r} has no partition that is open to you and has nodes")
    return Site(
        name=clean_name(cluster.name) if name is None else name,
        title=f"Cluster {cluster.name}",
        scheduler="slurm",
        node_types=tuple(_build_node_types(used)),
        as_of=as_of.isoformat(),
        source=f"sinfo and scontrol of {cluster.name}, Slurm {cluster.version}",
        notes="\n".join(_list_notes(cluster, used)),
        script={"clusters": cluster.name} if elsewhere else {},
    )


def clean_name(name: str) -> str:
    """A name a site can have, as near to this one as possible."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-")[:_LONGEST_NAME] or "cluster"


def list_unknown_memory(site: Site) -> list[str]:
    """The node types whose memory the scheduler does not know, to be filled in."""
    return [node.name for node in site.node_types if node.memory_bytes <= _UNKNOWN_MEMORY]


def _why_not(partition: Partition) -> str:
    if not partition.up:
        return "closed"
    if not partition.node_groups or partition.max_nodes == 0:
        return "without nodes"
    return "" if NAME.fullmatch(partition.name) else "with a name that site files do not allow"


def _build_node_types(partitions: Sequence[Partition]) -> Iterator[NodeType]:
    taken = {partition.name for partition in partitions}
    for partition in partitions:
        first, *second = _choose_kinds(partition)
        yield _build_node_type(partition, first, name=partition.name)
        for kind in second:
            name = _find_free_name(f"{partition.name[:50]}-{'gpu' if kind.gpus else 'cpu'}", taken)
            taken.add(name)
            yield _build_node_type(partition, kind, name=name)


def _choose_kinds(partition: Partition) -> list[NodeGroup]:
    """The most common kind, and the most common of those with GPUs if it has none, or without if it has."""
    first, *others = _list_kinds(partition)
    second = next((kind for kind in others if bool(kind.gpus) != bool(first.gpus)), None)
    return [first, second] if second else [first]


def _find_free_name(name: str, taken: Container[str]) -> str:
    numbered = (f"{name}-{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def _build_node_type(partition: Partition, kind: NodeGroup, *, name: str) -> NodeType:
    nodes = sum(other.count for other in _list_kinds(partition) if _has_all_of(other, kind))
    limit = partition.max_walltime_s
    return NodeType(
        name=name,
        partition=partition.name,
        cores=kind.cores,
        memory_bytes=kind.memory_bytes,
        gpus=kind.gpus,
        gpu_model=kind.gpu_model,
        max_nodes=min(nodes, partition.max_nodes or nodes),
        max_walltime_s=limit if limit and limit <= _LONGEST_WALLTIME_S else None,
        whole_node=partition.whole_node,
        memory_per_core_bytes=partition.default_memory_per_core_bytes,
    )


def _list_kinds(partition: Partition) -> list[NodeGroup]:
    """Nodes grouped by what a job can use of them, the most common first."""
    kinds: dict[NodeGroup, int] = {}
    for group in partition.node_groups:
        kind = replace(
            group,
            count=0,
            up=0,
            features=(),
            cores=min(group.cores, partition.max_cores_per_node or group.cores),
            memory_bytes=min(group.memory_bytes, partition.max_memory_per_node_bytes or group.memory_bytes),
        )
        kinds[kind] = kinds.get(kind, 0) + group.count
    return sorted((replace(kind, count=nodes) for kind, nodes in kinds.items()), key=lambda kind: -kind.count)


def _has_all_of(node: NodeGroup, other: NodeGroup) -> bool:
    larger = node.cores >= other.cores and node.memory_bytes >= other.memory_bytes and node.gpus >= other.gpus
    return larger and (not other.gpus or node.gpu_model == other.gpu_model)


def _list_notes(cluster: Cluster, used: Sequence[Partition]) -> Iterator[str]:
    for partition in used:
        chosen = _choose_kinds(partition)
        threads = max(kind.threads_per_core for kind in chosen)
        if threads > 1:
            yield f"Cores of {partition.name} are hardware threads, {threads} of each core."
        others = [kind for kind in _list_kinds(partition) if kind not in chosen]
        if others:
            yield f"Also in {partition.name}: {', '.join(map(_describe, others))}."
    left_out = [f"{partition.name} ({why})" for partition in cluster.partitions if (why := _why_not(partition))]
    if left_out:
        yield f"Partitions left out: {', '.join(left_out)}."


def _describe(kind: NodeGroup) -> str:
    gpus = f" and {kind.gpus} x {kind.gpu_model or 'GPU'}" if kind.gpus else ""
    nodes = "1 node" if kind.count == 1 else f"{kind.count} nodes"
    return f"{nodes} with {kind.cores} cores, {render_bytes(kind.memory_bytes)}{gpus}"


def render_site_file(site: Site) -> str:
    """A site file of this site; without prices, with lines to fill them in."""
    head = f"sites.{_render_key(site.name)}"
    lines = [f"[{head}]", *_render_fields(site, SITE_KEYS)]
    if not site.has_prices:
        lines += ["", f"[{head}.defaults]", _PRICES]
    for node in site.node_types:
        lines += ["", f"[{head}.nodes.{_render_key(node.name)}]", *_render_fields(node, NODE_KEYS)]
    return "\n".join(lines) + "\n"


def _render_fields(entity: Site | NodeType, keys: Mapping[str, Key]) -> Iterator[str]:
    usual = {field.name: field.default for field in fields(entity)}
    for name, key in keys.items():
        value = getattr(entity, key.field)
        if value != usual[key.field] and value not in ({}, ()):
            yield f"{name} = {_render_value(key.field, value)}"


def _render_value(field: str, value: Any) -> str:
    if field.endswith("_bytes"):
        return f'"{value // 2**20}MB"' if value % 2**20 == 0 else f'"{value}B"'
    if field == "max_walltime_s":
        return _render_walltime(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_render_key(name)} = {_quote(text)}' for name, text in value.items())} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_quote, value))}]"
    if isinstance(value, str):
        return _quote_lines(str(value)) if "\n" in value else _quote(str(value))
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def _render_walltime(seconds: float) -> str:
    return f'"{seconds / 3600:.0f}h"' if seconds % 3600 == 0 else f'"{seconds!r}s"'


def _render_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quote(name)


def _quote(text: str) -> str:
    """TOML's strings are escaped as JSON's are, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _quote_lines(text: str) -> str:
    lines = "\n".join(_quote(line)[1:-1] for line in text.split("\n"))
    return f'"""\n{lines}\n"""'
