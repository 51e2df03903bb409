"""``python -m benchmarks NAME [--json]``: measures, prints a table for people or one JSON object for programs."""

import argparse
import importlib
import json
import sys

from rich.console import Console
from rich.table import Table

import benchmarks.advise.command
import benchmarks.clusters.command
import benchmarks.consumption.command
import benchmarks.distributed.command
import benchmarks.ets.command
import benchmarks.gpus.command
import benchmarks.house.command
import benchmarks.install
import benchmarks.memory.command
import benchmarks.programs.command
import benchmarks.runs.command
import benchmarks.sanity.command
import benchmarks.startup.command

NAMES = {
    "house": "size of the package, its imports, and the modules that five flows load",
    "startup": "time and memory of commands with 1,000 stored runs, compared with optuna --help",
    "observe": "cycles found and not found in series of which all is known, and what looking at a job costs",
    "install": "packages and size of pip install into an empty environment, now and at an earlier revision",
    "sampler": "what measuring costs a run, against running it bare",
    "store_size": "runs list, predict and recommend with 100,000 stored runs against 1,000",
    "ranking": "ranking 100,000 (configuration, allocation) pairs against the bare models' predict",
    "accuracy": "the example's predictions for 20 unseen full-scale configurations that are then run",
    "build_speed": "building from 5,000 runs of 15 parameters, against one plain fit of boosted trees",
    "adaptive": "the running time that adaptive generation needs for the error of the full sweep",
    "transfer": "few runs of one app with many of another, against the few alone",
    "slurm": "a campaign of 200 runs on a real cluster, against a bare sbatch --array of the same commands",
    "history": "importing a million lines of accounting, against reading them as CSV",
    "capture": "steps read from code against recorded ones, in ResNet-50's make_fx time, in memory of a large model",
    "programs": "small sweeps of twelve ordinary programs, and full-scale configurations that they did not run",
    "sanity": "well-known models on well-known GPUs, against throughputs that others published",
    "runs": "predictions on published runs, compared with published results",
    "steps": "training steps of ten networks on this machine, predicted after measuring others for minutes",
    "from_code": "recorded iterations predicted from the models' code, compared with recorded operators",
    "advise": "trainings that others measured: throughputs, whole jobs, the best choice; ten well-known recipes",
    "clusters": "steps of data-parallel training that others measured: few GPUs to more, and clusters never seen",
    "consumption": "consumption of measured distributed trainings, predicted for held-out families and settings",
    "distributed": "training steps on many GPUs by any layout, against steps that others measured",
    "gpus": "kernels and whole steps on GPUs and models that were left out, in every precision",
    "memory": "peaks of GPU memory that others measured, of models that were left out; the largest batch that fits",
    "ets": "training iterations that others recorded operator by operator, of families never seen",
}
COMMANDS = {
    "advise": benchmarks.advise.command,
    "clusters": benchmarks.clusters.command,
    "consumption": benchmarks.consumption.command,
    "distributed": benchmarks.distributed.command,
    "gpus": benchmarks.gpus.command,
    "house": benchmarks.house.command,
    "install": benchmarks.install,
    "memory": benchmarks.memory.command,
    "programs": benchmarks.programs.command,
    "runs": benchmarks.runs.command,
    "sanity": benchmarks.sanity.command,
    "ets": benchmarks.ets.command,
    "startup": benchmarks.startup.command,
}  # with options of their own


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, what in NAMES.items():
        command = commands.add_parser(name, help=what, description=what)
        command.add_argument("--json", action="store_true", help="print one JSON object")
        if name in COMMANDS:
            COMMANDS[name].add_arguments(command)
    arguments = parser.parse_args()
    if arguments.name in COMMANDS:
        COMMANDS[arguments.name].run_command(arguments)
        return
    figures = importlib.import_module(f"benchmarks.{arguments.name}").run()
    if arguments.json:
        json.dump(figures, sys.stdout, indent=2)
        print()
        return
    table = Table(title=f"{arguments.name}: {NAMES[arguments.name]}", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    Console().print(table)


if __name__ == "__main__":
    main()
