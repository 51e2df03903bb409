"""The catalogue of sites: those that ship with Foretell, and those of users' files."""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from foretell.core.errors import Mistake, NotFoundError, SiteError
from foretell.core.run import BENCH_FIGURES
from foretell.core.site import Billing, NodeType, Site
from foretell.core.units import parse_bytes, parse_duration, parse_money, parse_rate

SCHEDULERS = ("slurm", "shell")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
A_NAME = "a name of letters, digits, '.', '_' and '-', at most 64 long"
# Options that a site may set: resources, and the account that is charged. Only users decide what a job runs, as whom,
# in which environment and files, and who gets mail. Full names only, as sbatch accepts abbreviations.
SITE_OPTIONS = (
    "account", "cluster-constraint", "clusters", "comment", "constraint", "contiguous", "core-spec",
    "cores-per-socket", "cpu-freq", "cpus-per-gpu", "delay-boot", "distribution", "exclude", "exclusive",
    "extra-node-info", "gpu-bind", "gpu-freq", "gpus", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags",
    "hint", "licenses", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "nice", "no-requeue",
    "nodelist", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "overcommit",
    "oversubscribe", "prefer", "qos", "requeue", "reservation", "sockets-per-node", "spread-job", "switches",
    "thread-spec", "threads-per-core", "tmp", "tres-bind", "tres-per-task", "use-min-nodes", "wait-all-nodes",
    "wckey",
)  # fmt: skip
# Options that Foretell sets itself: a site cannot remove options that the user gives, such as export.
_REFUSABLE = (
    "account", "array", "clusters", "cpus-per-task", "gpus-per-node", "mem", "nodes", "ntasks-per-node", "partition",
    "requeue", "time",
)  # fmt: skip
_AS_OF = re.compile(r"\d{4}-\d{2}(-\d{2})?")
_MOST_COUNT = 1_000_000
_MOST_BYTES = 2**50
_MOST_DURATION_S = 366 * 86400
_MOST_RATE = 1e14  # bytes a second
_MOST_PRICE = 1_000_000
_MHZ = (100, 20_000)
_MOST_BENCH_S = 3600


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a site file, and the field of the entity it fills.

    ``read`` raises one of :data:`UNREADABLE` if the value is not what is ``expected``.
    """

    field: str
    read: Callable[[Any], Any]
    expected: str


UNREADABLE = (ValueError, TypeError, AttributeError, OverflowError)


class UnknownOptionError(ValueError):
    """Options that a site file may not name."""

    def __init__(self, names: Iterable[object]) -> None:
        super().__init__(f"the option {', '.join(repr(str(name)) for name in names)}")


def _read_name(value: Any) -> str:
    return _match(NAME, value)


def _read_line(value: Any) -> str:
    _check(isinstance(value, str) and value.strip() and value.isprintable())
    return str(value).strip()


def _read_text(value: Any) -> str:
    lines = value.strip().expandtabs().splitlines()
    _check(all(line.isprintable() for line in lines))
    return "\n".join(lines)


def _read_date(value: Any) -> str:
    return _match(_AS_OF, value.isoformat() if type(value) is date else value)


def _read_count(value: Any) -> int:
    _check(_read_count_or_zero(value) > 0)
    return int(value)


def _read_count_or_zero(value: Any) -> int:
    _check(type(value) is int and 0 <= value <= _MOST_COUNT)
    return int(value)


def _read_bytes(value: Any) -> int:
    size = parse_bytes(_require(value, str))
    _check(size <= _MOST_BYTES)
    return size


def _read_duration(value: Any) -> float:
    seconds = parse_duration(_require(value, str))
    _check(seconds <= _MOST_DURATION_S)
    return seconds


def _read_rate(value: Any) -> float:
    rate = parse_rate(_require(value, str))
    _check(rate <= _MOST_RATE)
    return rate


def _read_price(value: Any) -> Decimal:
    price = parse_money(_require(value, str, int, Decimal))
    _check(price <= _MOST_PRICE)
    return price


def _read_mhz(value: Any) -> float:
    mhz = float(_require(value, int, Decimal))
    _check(_MHZ[0] <= mhz <= _MHZ[1])
    return mhz


def _read_bench(value: Any) -> float:
    seconds = float(_require(value, int, Decimal))
    _check(0 < seconds <= _MOST_BENCH_S)
    return seconds


def _read_flag(value: Any) -> bool:
    return bool(_require(value, bool))


def _read_scheduler(value: Any) -> str:
    _check(value in SCHEDULERS)
    return str(value)


def _read_options(value: Any) -> dict[str, str]:
    _check_options(value.keys(), SITE_OPTIONS)
    return {name: text if text == "" else _read_line(text) for name, text in value.items()}  # empty: a flag


def _read_refused(value: Any) -> tuple[str, ...]:
    names = _require(value, list)
    _check_options(names, _REFUSABLE)
    return tuple(names)


def _check_options(names: Iterable[object], allowed: Collection[str]) -> None:
    unknown = [name for name in names if name not in allowed]
    if unknown:
        raise UnknownOptionError(unknown)


def _match(pattern: re.Pattern[str], value: Any) -> str:
    _check(pattern.fullmatch(value))
    return str(value)


def _require(value: Any, *types: type) -> Any:
    _check(type(value) in types)  # isinstance would take true for a number
    return value


def _check(holds: object) -> None:
    if not holds:
        raise ValueError


_COUNTED = f"a whole number from 1 to {_MOST_COUNT}"
_SIZED = 'a size, for example "178GB" or "4556MB", at most 1024TB'
_PRICED = f"a price per hour, for example 0.003, from 0 to {_MOST_PRICE}"
_RATED = 'a rate in each direction, for example "200Gb/s" or "25GB/s"'
_WORDED = "a line of text in quotes"
_YES_OR_NO = "true or false"
_BENCHED = f"seconds above 0, at most {_MOST_BENCH_S}, as 'foretell machine bench --json' prints them"
_VERSIONED = "the whole number that 'foretell machine bench --json' prints next to its figures"

SITE_KEYS = {
    "title": Key("title", _read_line, _WORDED),
    "scheduler": Key("scheduler", _read_scheduler, " or ".join(f'"{name}"' for name in SCHEDULERS)),
    "currency": Key("currency", _read_name, 'a unit, for example "USD" or "SU"'),
    "as_of": Key("as_of", _read_date, "a date, for example 2025-11-01, or a month in quotes"),
    "source": Key("source", _read_line, _WORDED),
    "notes": Key("notes", _read_text, "text in quotes"),
    "refuses": Key("refuses", _read_refused, f'a list such as ["mem"], of these: {", ".join(_REFUSABLE)}'),
    "script": Key(
        "script",
        _read_options,
        'a table such as { account = "PAS1234" }, with full names of these options of sbatch: '
        f"{', '.join(SITE_OPTIONS)}; users give others, with --option or under slurm.options in the app file",
    ),
}
NODE_KEYS = {
    "partition": Key("partition", _read_name, A_NAME),
    "cluster": Key("cluster", _read_name, A_NAME),
    "cores": Key("cores", _read_count, _COUNTED),
    "memory": Key("memory_bytes", _read_bytes, _SIZED),
    "gpus": Key("gpus", _read_count_or_zero, f"a whole number from 0 to {_MOST_COUNT}"),
    "gpu_model": Key("gpu_model", _read_line, _WORDED),
    "gpu_memory": Key("gpu_memory_bytes", _read_bytes, _SIZED),
    "cpu_model": Key("cpu_model", _read_line, _WORDED),
    "architecture": Key("architecture", _read_name, "the architecture as 'uname -m' prints it: x86_64 or aarch64"),
    "network": Key("network_bytes", _read_rate, _RATED),
    "gpu_link": Key("gpu_link_bytes", _read_rate, _RATED),
    "cpu_mhz": Key("cpu_mhz", _read_mhz, f"a clock in MHz from {_MHZ[0]} to {_MHZ[1]}"),
    "max_nodes": Key("max_nodes", _read_count, _COUNTED),
    "max_walltime": Key("max_walltime_s", _read_duration, 'a duration, for example "168h", at most a year'),
    "whole_node": Key("whole_node", _read_flag, _YES_OR_NO),
    "whole_node_if_several": Key("whole_node_if_several", _read_flag, _YES_OR_NO),
    "billing": Key("billing", Billing, " or ".join(f'"{kind}"' for kind in Billing)),
    "price_per_core_h": Key("price_per_core_h", _read_price, _PRICED),
    "price_per_gpu_h": Key("price_per_gpu_h", _read_price, _PRICED),
    "price_per_node_h": Key("price_per_node_h", _read_price, _PRICED),
    "memory_per_core": Key("memory_per_core_bytes", _read_bytes, _SIZED),
    "bench_version": Key("bench_version", _read_count, _VERSIONED),
    **{name: Key(name, _read_bench, _BENCHED) for name in BENCH_FIGURES},
}

_PRICE_OF = {Billing.CORE_HOURS: "price_per_core_h", Billing.NODE_HOURS: "price_per_node_h"}
_LONGEST_SHOWN = 60


def list_sites(*, extra_files: Iterable[Path] = ()) -> tuple[Site, ...]:
    """Every site that :func:`get_site` knows, by name: the shipped ones, those of the files, each cluster of a site.

    Raises:
        SiteError: if a file cannot be used.
        NotFoundError: if a file does not exist.
    """
    sites = {site.name: site for site in (*_load_catalogue(), *load_sites(extra_files))}
    clusters = {cluster.name: cluster for site in sites.values() for cluster in _split_clusters(site)}
    known = clusters | sites
    return tuple(known[name] for name in sorted(known))


def get_site(name: str, *, extra_files: Iterable[Path] = ()) -> Site:
    """The site, or the one cluster of a site, of that name. A site in a file replaces a shipped one of its name.

    Raises:
        NotFoundError: if there is none, or a file does not exist.
        SiteError: if a file cannot be used.
    """
    known = {site.name: site for site in list_sites(extra_files=extra_files)}
    if name not in known:
        raise NotFoundError("site", name, known=known, hint="Describe your own in a site file and pass --site-file.")
    return known[name]


def load_sites(paths: Iterable[Path]) -> tuple[Site, ...]:
    """The sites in these files, in order.

    Raises:
        SiteError: if a file cannot be read or used; it lists every mistake in that file.
        NotFoundError: if a file does not exist.
    """
    return tuple(site for path in paths for site in parse_sites(_read_file(path), source=str(path)))


def parse_sites(text: str, *, source: str) -> tuple[Site, ...]:
    """The sites in a file's text.

    Raises:
        SiteError: with every mistake in it.
    """
    reader = _Reader()
    sites = reader.read_sites(_parse_toml(text, source=source))
    if reader.mistakes:
        raise SiteError(source, reader.mistakes)
    return tuple(sites)


@cache
def _load_catalogue() -> tuple[Site, ...]:
    files = resources.files("foretell.advice").joinpath("data").iterdir()
    return tuple(site for file in files for site in parse_sites(file.read_text(encoding="utf-8"), source=file.name))


def _split_clusters(site: Site) -> Iterator[Site]:
    for cluster in {node.cluster for node in site.node_types if node.cluster}:
        nodes = tuple(node for node in site.node_types if node.cluster == cluster)
        yield replace(site, name=cluster, title=f"{site.title}, {cluster}", node_types=nodes)


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise NotFoundError("site file", str(path), hint="Check the path.") from None
    except (OSError, ValueError) as exc:  # ValueError: not UTF-8, or a zero byte in the path
        expected = "a readable TOML file in UTF-8; check the path, its permissions and its encoding"
        reason = getattr(exc, "strerror", None) or str(exc)
        raise SiteError(str(path), [Mistake(place="the file", found=reason, expected=expected)]) from exc


def _parse_toml(text: str, *, source: str) -> dict[str, Any]:
    expected = "TOML, laid out as in docs/sites.md"
    try:
        return tomllib.loads(text, parse_float=_parse_decimal)
    except tomllib.TOMLDecodeError as exc:
        line = re.search(r"at line (\d+)", str(exc))
        mistake = Mistake(
            place="the file", found=f"a syntax error ({exc})", expected=expected, line=int(line[1]) if line else None
        )
        raise SiteError(source, [mistake]) from exc
    except (ValueError, RecursionError) as exc:
        found = "a number of thousands of digits, or hundreds of nested lists or tables"
        raise SiteError(source, [Mistake(place="the file", found=found, expected=expected)]) from exc


def _parse_decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond what Decimal holds
        return Decimal("NaN")


class _Reader:
    """Turns a parsed site file into sites, and collects all mistakes in it."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def read_sites(self, document: Mapping[str, Any]) -> list[Site]:
        self._check_keys(document, known=("sites",), place="the file")
        tables = self._read_tables(document, "sites", place="the file")
        sites = [self._read_site(name, table, place=f"site {_shorten(name)}") for name, table in tables.items()]
        return [site for site in sites if site]

    def _read_site(self, name: str, table: Mapping[str, Any], *, place: str) -> Site | None:
        self._check_name(name, place=place)
        self._check_keys(table, known=(*SITE_KEYS, "defaults", "nodes"), place=place)
        fields = self._read_fields(table, SITE_KEYS, place=place)
        self._check_required(table, {name: SITE_KEYS[name] for name in ("title", "scheduler")}, place=place)
        nodes = self._read_nodes(table, place=place)
        self._check_partitions(nodes, place=place)
        return None if self.mistakes else Site(name=name, node_types=tuple(nodes), **fields)

    def _read_nodes(self, table: Mapping[str, Any], *, place: str) -> list[NodeType]:
        defaults = self._read_table(table.get("defaults", {}), place=f"{place}, defaults")
        self._check_keys(defaults, known=NODE_KEYS, place=f"{place}, defaults")
        common = self._read_fields(defaults, NODE_KEYS, place=f"{place}, defaults")
        tables = self._read_tables(table, "nodes", place=place)
        nodes = [
            self._read_node(name, own, defaults=defaults, common=common, place=f"{place}, node {_shorten(name)}")
            for name, own in tables.items()
        ]
        return [node for node in nodes if node]

    def _read_node(
        self, name: str, own: Mapping[str, Any], *, defaults: Mapping[str, Any], common: Mapping[str, Any], place: str
    ) -> NodeType | None:
        self._check_name(name, place=place)
        self._check_keys(own, known=NODE_KEYS, place=place)
        fields = {"partition": name, **common, **self._read_fields(own, NODE_KEYS, place=place)}
        required = ["cores", "memory"]
        price = _PRICE_OF.get(fields.get("billing", Billing.FREE))
        if price:
            required.append(price)
        if any(name in fields for name in BENCH_FIGURES):
            required.append("bench_version")
        self._check_required({**defaults, **own}, {name: NODE_KEYS[name] for name in required}, place=place)
        return None if self.mistakes else NodeType(name=name, **fields)

    def _read_fields(self, table: Mapping[str, Any], keys: Mapping[str, Key], *, place: str) -> dict[str, Any]:
        fields = {}
        for name, key in keys.items():
            try:
                if name in table:
                    fields[key.field] = key.read(table[name])
            except UnknownOptionError as exc:
                self._add(f"{place}, {name}", found=_shorten(str(exc)), expected=key.expected)
            except UNREADABLE:
                self._add(f"{place}, {name}", found=_describe(table[name]), expected=key.expected)
        return fields

    def _read_tables(self, table: Mapping[str, Any], key: str, *, place: str) -> dict[str, Mapping[str, Any]]:
        tables = self._read_table(table.get(key, {}), place=f"{place}, {key}")
        if not tables:
            self._add(place, found=f"no {key}", expected=f"at least one, in a table under {key}")
        return {
            name: self._read_table(inner, place=f"{place}, {key} {_shorten(name)}") for name, inner in tables.items()
        }

    def _read_table(self, value: Any, *, place: str) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self._add(place, found=_describe(value), expected="a table")
        return {}

    def _check_name(self, name: str, *, place: str) -> None:
        if not NAME.fullmatch(name):
            self._add(place, found=f"the name {_describe(name)}", expected=A_NAME)

    def _check_keys(self, table: Mapping[str, Any], *, known: Collection[str], place: str) -> None:
        for name in table:
            if name not in known:
                self._add(place, found=f"the unknown key {_describe(name)}", expected=f"one of {', '.join(known)}")

    def _check_required(self, table: Mapping[str, Any], keys: Mapping[str, Key], *, place: str) -> None:
        for name, key in keys.items():
            if name not in table:
                self._add(f"{place}, {name}", found="nothing", expected=key.expected)

    def _check_partitions(self, nodes: Iterable[NodeType], *, place: str) -> None:
        # The scheduler can distinguish two kinds of nodes in a partition only by the GPUs that a job requests.
        taken = Counter((node.cluster, node.partition, node.gpus > 0) for node in nodes)
        for (cluster, partition, _), count in taken.items():
            if count > 1:
                where = f" of cluster {cluster}" if cluster else ""
                found = f"{count} node types in partition {partition}{where}"
                expected = "one node type in each partition, or one with GPUs and one without"
                self._add(place, found=found, expected=expected)

    def _add(self, place: str, *, found: str, expected: str) -> None:
        self.mistakes.append(Mistake(place=place, found=found, expected=expected))


def _describe(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 128:  # str() refuses numbers of thousands of digits
        return "a number of more than 128 bits"
    return _shorten(repr(value) if isinstance(value, str) else str(value))


def _shorten(text: str) -> str:
    shown = text if text.isprintable() else repr(text)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
