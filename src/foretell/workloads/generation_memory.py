"""Captures the memory in which a causal language model generates text: the prompt, then the longest of its steps."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from foretell.core.errors import ForetellError
from foretell.core.memory import MemoryKind, MemoryTrace
from foretell.core.workload import StepPhase
from foretell.workloads.capture import layers_tracked, prepared
from foretell.workloads.cuda_paths import CudaPaths
from foretell.workloads.example_inputs import build_example_input, seeded
from foretell.workloads.generation_capture import (
    check_causal,
    choose_token,
    find_cache,
    find_ids,
    find_lengths,
    read_tokens,
)
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.memory_capture import build_casts
from foretell.workloads.memory_recorder import MemoryMode, MemoryRecorder
from foretell.workloads.model_loading import explain
from foretell.workloads.recorder import CallMode, Recorder
from foretell.workloads.step_options import InputSpec, StepOptions
from foretell.workloads.training_step import find_blocks, find_heads, ignore_warnings

_DEPTH = 4  # of containers in which a cache keeps its tensors


def capture_generation_memory(
    model: nn.Module, inputs: Sequence[InputSpec], *, options: StepOptions | None = None, name: str = ""
) -> MemoryTrace:
    """The blocks of the step that reads the prompt, and of the last step with a cache of keys and values.

    Raises:
        WorkloadError: The model does not map token ids to scores of the next token, or cannot be captured.
    """
    options = options or StepOptions(mode="generate")
    ids = find_ids(inputs)
    prompt, new = find_lengths(ids, options)
    check_causal(model, name)
    tensors = HybridTensors()
    recorder = Recorder({}, build_casts(options))
    memory = MemoryRecorder(recorder)
    with prepared(model, replace(options, mode="inference", prompt=None, new=None)):
        memory.hold(model.named_parameters(), MemoryKind.WEIGHTS)
        memory.hold(model.named_buffers(), MemoryKind.BUFFERS)
        try:
            with layers_tracked(model, recorder), ignore_warnings(), seeded(), tensors, CudaPaths(), torch.no_grad():
                _record(model, replace(ids, shape=(ids.shape[0], prompt)), max(1, prompt + new - 2), recorder, memory)
        except ForetellError:
            raise
        except (Exception, SystemExit) as exc:
            raise explain(exc, recorder) from exc
    return memory.build(
        name=name or type(model).__name__,
        batch=ids.shape[0],
        settings={**options.settings, "mode": "generate", "prompt": str(prompt), "new": str(new)},
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        length=prompt,
        repeated=tuple(name for name, _layer in find_blocks(model)),
        heads=find_heads(model),
        notes=tensors.notes,
    )


def _record(model: nn.Module, prompt: InputSpec, last: int, recorder: Recorder, memory: MemoryRecorder) -> None:
    """The prompt's step as the first, and as the second the one that reads the last token."""
    memory.begin_step()
    memory.begin_phase(StepPhase.FORWARD)
    with MemoryMode(memory), CallMode(recorder):
        cache, word = _read(model, prompt, build_example_input(prompt))
        memory.mark(_list_tensors(cache, _DEPTH), MemoryKind.CACHE)
        del cache, word
    recorder.forget_casts()
    memory.begin_step()
    memory.begin_phase(StepPhase.FORWARD)
    given: dict[str, Any] = {}
    ids = build_example_input(replace(prompt, shape=(prompt.shape[0], last)))
    cache, word = _read(model, prompt, ids)  # not recorded: only its cache is there before the last step
    if cache is not None:
        for each in _list_tensors(cache, _DEPTH):
            memory.allocate(each, MemoryKind.CACHE)
        given, ids = {"past_key_values": cache}, word[:, None]
    with MemoryMode(memory), CallMode(recorder):
        cache, word = _read(model, prompt, ids, **given)
        memory.mark(_list_tensors(cache, _DEPTH), MemoryKind.CACHE)
        del cache, word


def _read(model: nn.Module, spec: InputSpec, ids: torch.Tensor, **cache: Any) -> tuple[Any, torch.Tensor]:
    """The cache after these tokens, nothing if the model has none, and the next token."""
    out = read_tokens(model, ids, **cache) if spec.name is None else read_tokens(model, **{spec.name: ids}, **cache)
    cached = "past_key_values" in inspect.signature(model.forward).parameters
    return find_cache(out) if cached else None, choose_token(out)


def _list_tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    """The tensors in nested containers and objects."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth:
        parts: Sequence[Any] = ()
        if isinstance(value, (list, tuple)):
            parts = value
        elif isinstance(value, Mapping):
            parts = list(value.values())
        elif hasattr(value, "__dict__"):
            parts = list(vars(value).values())
        for each in parts:
            yield from _list_tensors(each, depth - 1)
