"""The keys of a site file: how each value is read, and what is expected of it."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from foretell.core.run import BENCH_FIGURES
from foretell.core.site import Billing
from foretell.core.units import parse_bytes, parse_duration, parse_money

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
