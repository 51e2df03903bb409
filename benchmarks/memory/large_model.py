"""A Llama of 70 billion parameters, fully sharded on 64 GPUs: what the answer costs.

The process that answers, with its memory, is compared with one that reads the operators of the same step for its time.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.capture import LLAMA
from benchmarks.memory.results import Result
from foretell.core.layouts import parse_layout
from foretell.memory.layout_shards import apply_layout
from foretell.memory.usage import measure_usage
from foretell.workloads.api import read_memory, read_workload
from foretell.workloads.step_options import InputSpec, StepOptions

_GPUS, _TOKENS = 64, 4096
_REPEATS = 3
_OPTIONS = StepOptions(optimizer="adamw", precision="bf16", checkpointing=True)


def judge_large() -> list[Result]:
    """Memory of the process, and its time by that of reading the operators; medians of processes in turn."""
    runs = [(_start("operators"), _start("memory")) for _ in range(_REPEATS)]
    capture = statistics.median(first["seconds"] for first, _ in runs)
    answer = statistics.median(second["seconds"] for _, second in runs)
    found = runs[-1][1]
    return [
        Result(
            what="Llama 70B, FSDP on 64 GPUs",
            group="cost of the answer",
            cases=_REPEATS,
            figures={
                "GB of the process": max(run["peak_gb"] for _, run in runs),
                "times the capture": answer / capture,
            },
            wanted={"GB of the process": 1.0, "times the capture": 2.0},
            note=f"{answer:.1f} s; {found['allocated_gb']:.1f} GB allocated on each GPU, batch 1 of {_TOKENS} tokens",
        )
    ]


def _start(what: str) -> dict[str, float]:
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory.large_model", what], check=True, capture_output=True, text=True
    )
    figures: dict[str, float] = json.loads(found.stdout)
    return figures


def answer(what: str) -> dict[str, float]:
    """Read the step once, in this process. The time is that of the processor, from after the imports on."""
    import transformers.models.llama.modeling_llama  # noqa: F401  # which both would import

    inputs = [InputSpec(shape=(1, _TOKENS), dtype="int64", high=int(str(LLAMA["vocab_size"])), name="input_ids")]
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(LLAMA))
        started = time.process_time()
        if what == "operators":
            read_workload(folder, inputs, options=_OPTIONS)
        else:
            trace = apply_layout(read_memory(folder, inputs, options=_OPTIONS), parse_layout("fsdp", gpus=_GPUS))
            figures["allocated_gb"] = measure_usage(trace).allocated_bytes / 1e9
        figures["seconds"] = time.process_time() - started
    lines = Path("/proc/self/status").read_text().splitlines()
    figures["peak_gb"] = int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024 / 1e9
    return figures


if __name__ == "__main__":
    print(json.dumps(answer(sys.argv[1])))
