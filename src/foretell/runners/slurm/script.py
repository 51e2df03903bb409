"""A launch as an sbatch script."""

import math
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from foretell.core.errors import RunnerError
from foretell.core.run import Allocation, Launch
from foretell.core.units import render_clock
from foretell.runners.shell_script import render_body

_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_VALUE = re.compile(r"[!-~]*", re.ASCII)  # visible ASCII: sbatch splits a line at blanks
_LONGEST_NAME = 64


def render_job_script(
    launch: Launch,
    *,
    job_name: str,
    allocation: Allocation,
    gpu_model: str | None = None,
    account: str | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    without: Collection[str] = (),
) -> str:
    """A complete script for ``sbatch``.

    ``options`` are further ``#SBATCH`` options by their long names; they win over ours, an empty value is a flag.
    ``without`` names options that the site's scheduler does not take.
    The command runs once, on the first node: a command for several nodes starts its own tasks (``srun``).

    Raises:
        RunnerError: if an option, a word or a variable cannot be written in such a script.
    """
    asked = build_options(job_name, allocation, gpu_model=gpu_model, account=account) | dict(options)
    header = render_header({name: value for name, value in asked.items() if name not in without})
    return "\n".join([*header, "", *render_body(launch, command=launch.argv)]) + "\n"


def render_header(options: Mapping[str, str]) -> list[str]:
    """The first lines of a script for ``sbatch``.

    Raises:
        RunnerError: if an option cannot be written there.
    """
    return ["#!/bin/bash", *(_render_directive(name, value) for name, value in options.items())]


def build_options(
    job_name: str, allocation: Allocation, *, gpu_model: str | None = None, account: str | None = None
) -> dict[str, str]:
    """An allocation as ``sbatch`` is asked for it, by long names."""
    gpus = f"{gpu_model}:{allocation.gpus}" if gpu_model else str(allocation.gpus)
    directives = {
        "job-name": clean_name(job_name),
        "account": account,
        "partition": allocation.partition,
        "nodes": str(allocation.nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(allocation.cores),
        "mem": f"{math.ceil(allocation.memory_bytes / 2**20)}M" if allocation.memory_bytes else None,
        "gpus-per-node": gpus if allocation.gpus else None,
        "time": render_clock(allocation.walltime_s) if allocation.walltime_s else None,
        "output": "%x-%j.out",
    }
    return {name: value for name, value in directives.items() if value is not None}


def clean_name(name: str) -> str:
    """A name that Slurm takes as it is."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name)[:_LONGEST_NAME].strip("-") or "job"


def _render_directive(name: str, value: str) -> str:
    if not _OPTION.fullmatch(name):
        raise RunnerError(f"{name!r} is no option of sbatch; write its long name without dashes before it, as in 'qos'")
    if not _VALUE.fullmatch(value):
        raise RunnerError(f"option {name!r} of sbatch: {value!r} holds blanks or characters that are not ASCII")
    return f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}"
