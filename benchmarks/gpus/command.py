"""The command ``python -m benchmarks gpus``."""

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
  python -m benchmarks gpus                                     whole steps; takes long
  python -m benchmarks gpus --only products,attention           single kernels, each device left out
  python -m benchmarks gpus --only neusight,torchvision
  python -m benchmarks gpus --only products --devices H200,B200
  python -m benchmarks gpus --labels mine.csv                   your own measured steps
  python -m benchmarks gpus --only whole --write-weights        fit what corrects steps, and ship it
  python -m benchmarks gpus --only products --write-weights     fit the model of products, and ship it

a file of labels is CSV with the columns device, model, input, precision, mode, batch, seconds, as in
  H100,timm:resnet50,"256,3,224,224",bf16,training,256,0.171
or, for matrix products, the columns device, precision, rows, columns, inner, seconds
model is a source of 'foretell workload predict', timm:NAME or torchvision:NAME; mode is training or inference
"""
# Each part: its module, and the function that gives its rows.
_KERNELS = {
    "products": "benchmarks.gpus.products:judge_products",
    "attention": "benchmarks.gpus.attention:judge_attention",
    "layers": "benchmarks.gpus.layers:judge_layers",
    "convolutions": "benchmarks.gpus.left_out_kernels:compare_convolutions",
    "passes": "benchmarks.gpus.left_out_kernels:compare_passes",
}
_STEPS = {
    "neusight": "benchmarks.gpus.neusight_rows:judge_neusight",
    "whole": "benchmarks.gpus.step_rows:judge_whole",
    "torchvision": "benchmarks.gpus.step_rows:judge_torchvision",
    "ets": "benchmarks.gpus.step_rows:judge_ets",
    "speed": "benchmarks.gpus.step_rows:judge_speed",
}
PARTS = {**_KERNELS, **_STEPS}
_WEIGHTS = {"products": "product", "attention": "attention"}  # parts and the kinds of kernels that they fit


_HELP = f"parts: of whole steps {', '.join(_STEPS)} (default: these), of single kernels {', '.join(_KERNELS)}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("--only", metavar="A,B", help=_HELP)
    parser.add_argument("--devices", metavar="A,B", help="only rows of these devices")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="also measured steps of your own")
    parser.add_argument("--write-weights", action="store_true", help="fit what ships, of the parts that are run")


def run_command(arguments: argparse.Namespace) -> None:
    """Compare predictions with measurements, and print a table or JSON.

    Raises:
        SystemExit: The comparison cannot be done.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        names = choose_parts(arguments.only, labels=arguments.labels is not None)
        devices = _split(arguments.devices)
        results = [result for name in names for result in _run(name, devices)]
        results += _judge_labels(arguments.labels, devices) if arguments.labels else []
        if arguments.write_weights:
            _write_weights(names)
    except (OSError, ValueError, ForetellError) as exc:
        raise SystemExit(f"error: {exc}") from exc
    if arguments.json:
        json.dump([asdict(result) for result in results], sys.stdout, indent=2)
        print()
    else:
        importlib.import_module("benchmarks.gpus.table").print_results(results)


def choose_parts(text: str | None, *, labels: bool) -> list[str]:
    """Parts to run: those asked for; those of whole steps, or none if there are labels of the user's."""
    if text is None:
        return [] if labels else list(_STEPS)
    asked = _split(text)
    unknown = [name for name in asked if name not in PARTS]
    if unknown:
        raise ValueError(f"no part named {unknown[0]!r}; known parts: {', '.join(PARTS)}")
    return asked


def _run(name: str, devices: Sequence[str]) -> Any:
    module, _, function = PARTS[name].partition(":")
    print(f"{name} ...", file=sys.stderr, flush=True)
    return getattr(importlib.import_module(module), function)(devices)


def _judge_labels(path: Path, devices: Sequence[str]) -> Any:
    """Measured products if the table has their inner dimension, otherwise steps."""
    columns = path.open(encoding="utf-8").readline().strip()
    if not columns:
        raise ValueError(f"{path}: no columns in the first line")
    if "inner" in columns.split(","):
        return importlib.import_module("benchmarks.gpus.products").judge_products(devices, labels=path)
    return importlib.import_module("benchmarks.gpus.step_rows").judge_labels(path, devices)


def _write_weights(parts: Sequence[str]) -> None:
    """Fit what ships with the package: the kernels of these parts, and after them what corrects steps."""
    kernels = [kind for part, kind in _WEIGHTS.items() if part in parts]
    if kernels:
        importlib.import_module("benchmarks.gpus.weights").write_weights(kernels)
    if "whole" in parts:
        importlib.import_module("benchmarks.gpus.step_rows").write_corrections()


def _split(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []
