"""Fine-tuning Llama-3.2-3B on an L40S by the methods of the library peft, each built by peft itself.

Measured by Hugging Face (https://github.com/huggingface/peft/tree/main/method_comparison/MetaMathQA): weights in
bfloat16, adapters in single precision, batches of 4 padded examples, AdamW. The script reports memory that is reserved:
its maximum, which comes with the longest batch, and the 99th percentile of its steps. The lengths of those two batches
are not reported; they are derived from one run, which tunes the norms and is not judged. A run is judged if peft builds
its configuration with as many trained parameters as were reported.
"""

import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.gpus.results import DATA
from benchmarks.memory.captures import cached
from benchmarks.memory.results import Result, measure_errors
from foretell.core.memory import MemoryTrace
from foretell.memory.usage import measure_usage
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import InputSpec, StepOptions

_BATCH, _LENGTHS = 4, (512, 768)  # tokens at which the steps are read; in between, memory is interpolated
_QUERIES = ["q_proj", "v_proj"]
_CALIBRATION = "ln_tuning/llama-3.2-3B-default"
_MEASURED = {"reserved, maximum": "mem_max_bytes", "reserved, 99th percentile": "mem_reserved_p99"}
_KNOWN = "LLMem ≤ 1.6 (allocated; V100, its own cases)"
_LLAMA: Mapping[str, Any] = {
    "vocab_size": 128256, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
    "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True,
}  # fmt: skip
# The class of each configuration and what differs from its defaults, as in the folder "experiments" of the source.
_EXPERIMENTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    _CALIBRATION: ("LNTuning", {"target_modules": ["input_layernorm", "norm", "post_attention_layernorm"]}),
    "lora/llama-3.2-3B-rank64-rslora": ("Lora", {"r": 64, "use_rslora": True}),
    "lora/llama-3.2-3B-rank10-target-mlp": ("Lora", {"r": 10, "target_modules": ["up_proj", "gate_proj", "down_proj"]}),
    "lora/llama-3.2-3B-rank32-dora": ("Lora", {"r": 32, "use_dora": True}),
    "ia3/llama-3.2-3B-default": ("IA3", {}),
    "loha/llama-3.2-3B-rank32": ("LoHa", {"r": 32, "target_modules": _QUERIES}),
    "lokr/llama-3.2-3B-rank32": ("LoKr", {"r": 32, "target_modules": _QUERIES}),
    "fourierft/llama-3.2-3B-n_frequency-5000": ("FourierFT", {"n_frequency": 5000, "target_modules": _QUERIES}),
    "miss/llama-3.2-3B-mini": ("Miss", {"r": 64, "mini_r": 64, "init_weights": "mini"}),
    "miss/llama-3.2-3B-bat": ("Miss", {"r": 64, "init_weights": "bat"}),
    "vblora/llama-3.2-3B-default": ("VBLoRA", {"r": 4, "num_vectors": 256, "target_modules": _QUERIES}),
    "c3a/llama-3.2-3B-default": ("C3A", {"block_size": 64}),
    "ptuning/llama-3.2-3B-default": ("PromptEncoder", {"num_virtual_tokens": 20, "task_type": "CAUSAL_LM"}),
}


class _Run(NamedTuple):
    experiment: str
    measured: dict[str, float]
    predicted: dict[int, float]  # by the tokens of a batch


def judge_peft() -> list[Result]:
    """The maximum of the reserved memory, and its 99th percentile."""
    warnings.simplefilter("ignore")
    runs = {run.experiment: run for run in _list_runs()}
    known = runs.pop(_CALIBRATION)
    results = []
    for what, column in _MEASURED.items():
        tokens = np.interp(known.measured[column], [known.predicted[each] for each in _LENGTHS], _LENGTHS)
        predicted = [_interpolate(run, float(tokens)) for run in runs.values()]
        measured = [run.measured[column] for run in runs.values()]
        errors = dict(zip(runs, np.array(predicted) / measured - 1, strict=True))
        worst = sorted(errors, key=lambda name: -abs(errors[name]))[:3]
        named = ", ".join(f"{name.partition('/')[0]} {errors[name]:+.1%}" for name in worst)
        results.append(
            Result(
                what=f"fine-tuning on L40S (peft): {what}",
                group="methods and ranks",
                cases=len(runs),
                figures=measure_errors(predicted, measured),
                known=_KNOWN,
                wanted={"median": 8.0},
                note=f"batches of {tokens:.0f} tokens; {named}",
            )
        )
    return results


def _interpolate(run: _Run, tokens: float) -> float:
    slope = (run.predicted[_LENGTHS[1]] - run.predicted[_LENGTHS[0]]) / (_LENGTHS[1] - _LENGTHS[0])
    return run.predicted[_LENGTHS[0]] + slope * (tokens - _LENGTHS[0])


def _list_runs() -> Iterator[_Run]:
    rows = pd.read_csv(DATA / "peft_method_comparison" / "runs.csv").sort_values("created")
    for experiment in _EXPERIMENTS:
        row = rows[(rows["experiment"] == experiment) & rows["trainable_params"].notna()].iloc[-1]
        try:
            _check_trained(experiment, int(row["trainable_params"]))
            predicted = {tokens: _predict(experiment, tokens) for tokens in _LENGTHS}
        except Exception as exc:  # whatever the code of a method raises
            print(f"{experiment}: {type(exc).__name__}: {str(exc)[:200]}", file=sys.stderr)
            continue
        yield _Run(experiment, {column: float(row[column]) for column in _MEASURED.values()}, predicted)


def _check_trained(experiment: str, reported: int) -> None:
    trained = sum(each.numel() for each in _build(experiment).parameters() if each.requires_grad)
    if trained != reported:
        raise ValueError(f"{trained} trained parameters, {reported} were reported")


def _predict(experiment: str, tokens: int) -> float:
    words = {"input_ids": _LLAMA["vocab_size"], "attention_mask": 2, "labels": _LLAMA["vocab_size"]}
    shape = _BATCH, tokens
    inputs = [InputSpec(shape=shape, dtype="int64", high=int(high), name=name) for name, high in words.items()]

    def make() -> MemoryTrace:
        return capture_memory(_build(experiment), inputs, options=StepOptions(optimizer="adamw"), name=experiment)

    found = measure_usage(cached(f"peft {experiment} {tokens}", make)).reserved_bytes
    print(f"{experiment} with {tokens} tokens: {found / 1e9:.2f} GB reserved", file=sys.stderr, flush=True)
    return float(found)


def _build(experiment: str) -> nn.Module:
    import peft
    from transformers import LlamaConfig, LlamaForCausalLM

    family, given = _EXPERIMENTS[experiment]
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**_LLAMA)).to(torch.bfloat16)
        config = getattr(peft, f"{family}Config")(**given)
        adapted: nn.Module = peft.get_peft_model(model, config, low_cpu_mem_usage=True)
    return adapted
