"""Sites, and mistakes in the files that describe them, for the terminal."""

from collections.abc import Iterable

from rich.console import Group
from rich.text import Text

from foretell.entities.site import Billing, NodeType, Site
from foretell.entities.units import render_bytes, render_duration, render_money
from foretell.errors import SiteError, SpecError
from foretell.reports.tables import BAD, HEADING, QUIET, add_cells, build_facts, build_line, build_table, stack
from foretell.reports.words import clean_block, count

_NO_SCHEDULER = "shell"


def render_sites(sites: Iterable[Site]) -> Group:
    """The sites that are known, one line each."""
    table = build_table("Site", "Title", "Scheduler", "Node types", "As of", numbers=("Node types",))
    for site in sites:
        add_cells(table, site.name, site.title, site.scheduler, str(len(site.node_types)), site.as_of)
    return stack(table)


def render_site(site: Site) -> Group:
    """Everything known of a site."""
    numbers = ("Cores", "Memory", "Nodes", "Limit")
    table = build_table("Node type", "Partition", "Cores", "Memory", "GPUs", "Nodes", "Limit", "Price", numbers=numbers)
    for node in site.node_types:
        add_cells(table, *_list_node_cells(node, site.currency))
    return stack(
        build_line(f"{site.name}: {site.title}", HEADING),
        build_facts([("Scheduler", site.scheduler), ("As of", site.as_of), ("Source", site.source)]),
        table,
        Text("No prices are filled in: every job here costs nothing.", style="yellow") if _lacks_prices(site) else None,
        Text(clean_block(site.notes), style=QUIET) if site.notes else None,
    )


def _lacks_prices(site: Site) -> bool:
    return site.scheduler != _NO_SCHEDULER and all(node.billing is Billing.FREE for node in site.node_types)


def _list_node_cells(node: NodeType, currency: str) -> tuple[str, ...]:
    return (
        node.name,
        node.partition,
        str(node.cores),
        render_bytes(node.memory_bytes),
        f"{node.gpus} x {node.gpu_model or 'GPU'}" if node.gpus else "",
        str(node.max_nodes),
        "" if node.max_walltime_s is None else render_duration(node.max_walltime_s),
        _render_price(node, currency),
    )


def _render_price(node: NodeType, currency: str) -> str:
    if node.billing is Billing.FREE:
        return "free"
    if node.billing is Billing.NODE_HOURS:
        return f"{render_money(node.price_per_node_h, currency)} a node-hour"
    gpus = f", {render_money(node.price_per_gpu_h, currency)} a GPU-hour" if node.gpus else ""
    return f"{render_money(node.price_per_core_h, currency)} a core-hour{gpus}"


def render_mistakes(error: SpecError | SiteError) -> Group:
    """Every mistake in a file, each with its place, what was found and what was expected."""
    table = build_table("Line", "Where", "Found", "Expected", numbers=("Line",))
    for mistake in error.mistakes:
        line = "" if mistake.line is None else str(mistake.line)
        add_cells(table, line, mistake.place, mistake.found, mistake.expected)
    return stack(build_line(f"{error.source}: {count(len(error.mistakes), 'mistake')}", BAD), table)
