"""The command ``python -m benchmarks memory``."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.memory.results import Result
from foretell.core.errors import ForetellError

EXAMPLES = """examples:
  python -m benchmarks memory                                   all parts; takes long
  python -m benchmarks memory --only cpu                        what lives at once, against PyTorch on this CPU
  python -m benchmarks memory --only large                      70 billion parameters on 64 GPUs: cost of the answer
  python -m benchmarks memory --only timm                       unseen models: peaks as nvidia-smi shows them
  python -m benchmarks memory --only ladder                     the largest batch that fits 24 GB
  python -m benchmarks memory --labels mine.csv                 your own measured peaks
  python -m benchmarks memory --only timm --write-weights       fit what corrects peaks, and ship it

a file of labels is CSV with the columns model, input, precision, optimizer, mode, batch, device, bytes, what, as in
  timm:resnet50,"64,3,224,224",fp32,sgd,training,64,A100-40,8876195840,device
model is timm:NAME, torchvision:NAME or a source of 'foretell memory'; mode is training or inference; what is allocated,
reserved or device, which is what nvidia-smi shows
"""
# Each part: its module, and the function that gives its rows.
PARTS = {
    "timm": "benchmarks.memory.timm_peaks:judge_timm",
    "ladder": "benchmarks.memory.timm_ladder:judge_ladder",
    "cpu": "benchmarks.memory.cpu_peaks:judge_cpu",
    "large": "benchmarks.memory.large_model:judge_large",
    "peft": "benchmarks.memory.peft_runs:judge_peft",
    "flagperf": "benchmarks.memory.flagperf_runs:judge_flagperf",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("--only", metavar="A,B", help=f"parts: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="measured peaks of your own, instead of the parts")
    parser.add_argument("--write-weights", action="store_true", help="fit what ships, on the peaks of timm's models")


def run_command(arguments: argparse.Namespace) -> None:
    """Compare predictions with measurements, and print a table or JSON.

    Raises:
        SystemExit: The comparison cannot be done.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        names = choose_parts(arguments.only, labels=arguments.labels is not None)
        results = [result for name in names for result in _run(name)]
        if arguments.labels:
            results += importlib.import_module("benchmarks.memory.own_peaks").judge_labels(arguments.labels)
        if arguments.write_weights:
            importlib.import_module("benchmarks.memory.weights").write_weights()
    except (OSError, ValueError, ForetellError) as exc:
        raise SystemExit(f"error: {exc}") from exc
    if arguments.json:
        json.dump([asdict(result) for result in results], sys.stdout, indent=2)
        print()
    else:
        importlib.import_module("benchmarks.memory.table").print_results(results)


def choose_parts(text: str | None, *, labels: bool) -> list[str]:
    """Parts to run: those asked for; all of them, or none if there are labels of the user's."""
    if text is None:
        return [] if labels else list(PARTS)
    asked = [name.strip() for name in text.split(",")]
    unknown = [name for name in asked if name not in PARTS]
    if unknown:
        raise ValueError(f"no part named {unknown[0]!r}; known parts: {', '.join(PARTS)}")
    return asked


def _run(name: str) -> Sequence[Result]:
    module, _, function = PARTS[name].partition(":")
    print(f"{name} ...", file=sys.stderr, flush=True)
    found: Sequence[Result] = getattr(importlib.import_module(module), function)()
    return found
