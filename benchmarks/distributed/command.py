"""The command ``python -m benchmarks distributed``."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foretell.core.errors import ForetellError

EXAMPLES = """examples:
  python -m benchmarks distributed                              steps that others measured; takes minutes
  python -m benchmarks distributed --only vtrain,neusight
  python -m benchmarks distributed --only mpt --devices H100
  python -m benchmarks distributed --only vtrain-multi --details      each step, its prediction and its parts
  python -m benchmarks distributed --labels mine.csv            your own measured steps

a file of labels is CSV with the columns device, gpus, layout, model, input, precision, seconds, as in
  H100,64,"fsdp",config.json,"2,4096:int64:128256",bf16,1.93
and optionally accumulation, checkpointing, optimizer, gpus_per_node and network (100Gb/s, for each GPU)
model is a source of 'foretell workload predict', and input one batch of one GPU
"""
# Each part: its module, the function that gives its rows, and the one that gives its predicted steps.
PARTS = {
    "collectives": ("collectives", "judge_collectives", ""),
    "vtrain": ("vtrain_rows", "judge_vtrain", ""),
    "megatron": ("megatron_rows", "judge_megatron", "predict_megatron"),
    "mpt": ("mpt_rows", "judge_mpt", "predict_mpt"),
    "neusight": ("neusight_rows", "judge_neusight", "predict_neusight"),
    "vtrain-single": ("vtrain_rows", "judge_single", "predict_single"),
    "vtrain-kept": ("vtrain_rows", "judge_single", "predict_single_kept"),
    "vtrain-multi": ("vtrain_rows", "judge_multi", "predict_multi"),
}
_USUAL = ("collectives", "neusight", "mpt", "megatron", "vtrain")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("--only", metavar="A,B", help=f"parts: {', '.join(PARTS)} (default: {', '.join(_USUAL)})")
    parser.add_argument("--devices", metavar="A,B", help="only rows of these devices")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="also measured steps of your own")
    parser.add_argument("--details", action="store_true", help="print each step instead, separated by tabs")


def run_command(arguments: argparse.Namespace) -> None:
    """Compare predictions with measurements, and print a table, JSON or each step.

    Raises:
        SystemExit: The comparison cannot be done.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        names = choose_parts(arguments.only, labels=arguments.labels is not None)
        devices = arguments.devices.split(",") if arguments.devices else []
        if arguments.details:
            _print_details(names, arguments.labels)
            return
        results = [result for name in names for result in _run(name, devices)]
        results += _find("label_rows", "judge_labels")(arguments.labels, devices) if arguments.labels else []
    except (OSError, ValueError, ForetellError) as exc:
        raise SystemExit(f"error: {exc}") from exc
    if arguments.json:
        json.dump([asdict(result) for result in results], sys.stdout, indent=2)
        print()
    else:
        _find("table", "print_results")(results)


def choose_parts(text: str | None, *, labels: bool) -> list[str]:
    """Parts to run: those asked for; the usual ones, or none if there are labels of the user's."""
    if text is None:
        return [] if labels else list(_USUAL)
    asked = [name.strip() for name in text.split(",")]
    unknown = [name for name in asked if name not in PARTS]
    if unknown:
        raise ValueError(f"no part named {unknown[0]!r}; known parts: {', '.join(PARTS)}")
    return asked


def _run(name: str, devices: Sequence[str]) -> Any:
    module, judge, _ = PARTS[name]
    print(f"{name} ...", file=sys.stderr, flush=True)
    return _find(module, judge)(devices)


def _print_details(names: Sequence[str], labels: Path | None) -> None:
    rows = []
    for name in names:
        module, _, predict = PARTS[name]
        if not predict:
            raise ValueError(f"--details is for these parts: {', '.join(_list_detailed())}")
        rows += _find(module, predict)()
    rows += _find("label_rows", "predict_labels")(labels) if labels else []
    print(_find("table", "render_details")(rows))


def _list_detailed() -> list[str]:
    return [name for name, (_, _, predict) in PARTS.items() if predict]


def _find(module: str, function: str) -> Any:
    return getattr(importlib.import_module(f"benchmarks.distributed.{module}"), function)
