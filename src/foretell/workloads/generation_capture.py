"""Captures the steps in which a causal language model generates text, with its cache of keys and values."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from foretell.core.errors import WorkloadError
from foretell.core.generation import Generation
from foretell.core.workload import Workload
from foretell.workloads.capture import capture
from foretell.workloads.fused_chains import fuse_chains
from foretell.workloads.step_options import InputSpec, StepOptions

PROMPT, NEW = 512, 128  # tokens, if not given
_TOKENS = InputSpec(shape=(1, PROMPT), dtype="int64")
_INNER = "model_"  # attribute of the wrapper below


def capture_generation(
    model: nn.Module, inputs: Sequence[InputSpec], *, options: StepOptions | None = None, name: str = ""
) -> Generation:
    """The step that reads the prompt, and steps with a cache of different lengths: the first, a middle and the last.

    Raises:
        WorkloadError: The model does not map token ids to scores of the next token, or cannot be captured.
    """
    options = options or StepOptions(mode="generate")
    ids = find_ids(inputs)
    prompt, new = find_lengths(ids, options)
    check_causal(model, name)
    one = replace(options, mode="inference", prompt=None, new=None, compile=False)  # compiled below, after the cut
    settings = {**options.settings, "mode": "generate", "prompt": str(prompt), "new": str(new)}
    name = name or type(model).__name__

    def read(length: int, *, then: bool) -> Workload:
        spec = replace(ids, shape=(ids.shape[0], length))
        step = capture(_Steps(model, then=then), [spec], options=one, name=name)
        return replace(step, settings=settings, layers=tuple(map(_strip, step.layers)))

    lengths = _choose_lengths(prompt, new)
    cached = "past_key_values" in inspect.signature(model.forward).parameters
    finish = fuse_chains if options.compile else _keep
    prefill = finish(read(prompt, then=False))
    if cached:
        decodes = [finish(_cut(read(length, then=True), read(length, then=False))) for length in lengths]
    else:
        decodes = [finish(read(length + 1, then=False)) for length in lengths]
    return Generation(
        name=name,
        batch=ids.shape[0],
        prompt=prompt,
        new=new,
        prefill=prefill,
        decodes=tuple(decodes),
        lengths=lengths,
        cached=cached,
    )


def _keep(workload: Workload) -> Workload:
    return workload


def find_lengths(ids: InputSpec, options: StepOptions) -> tuple[int, int]:
    """Tokens of the prompt, and tokens to generate."""
    return options.prompt or ids.shape[1], options.new or NEW


def find_ids(inputs: Sequence[InputSpec]) -> InputSpec:
    """The input of token ids; others, such as labels, are not needed to generate."""
    for given in inputs:
        if given.dtype in ("int64", "int32") and len(given.shape) == 2:
            return given
    found = ", ".join(map(str, inputs)) or "none"
    raise WorkloadError(
        f"mode generate needs an input of token ids with shape batch,tokens, such as {_TOKENS}:32000; found {found}"
    )


def check_causal(model: nn.Module, name: str) -> None:
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        raise WorkloadError(f"{name}: mode generate is for causal language models; this is an encoder with a decoder")


def _choose_lengths(prompt: int, new: int) -> tuple[int, ...]:
    """Tokens before the first, a middle and the last of the steps after the prompt."""
    if new < 2:
        return ()
    last = prompt + new - 2
    return tuple(sorted({prompt, (prompt + last) // 2, last}))


class _Steps(nn.Module):
    """Reads a text, and then, if asked, one token more with the cache of the text."""

    def __init__(self, model: nn.Module, *, then: bool) -> None:
        super().__init__()
        self.model_ = model
        self.then = then

    def forward(self, *args: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        out = read_tokens(self.model_, *args, **named)
        token = choose_token(out)
        if not self.then:
            return token
        (ids,) = [*args, *named.values()]
        word = ids[:, :1]
        again = dict.fromkeys(named, word)
        cache = find_cache(out)
        return choose_token(read_tokens(self.model_, *([] if named else [word]), **again, past_key_values=cache))


def read_tokens(model: nn.Module, *args: torch.Tensor, **named: Any) -> Any:
    """What the model returns when ``generate()`` of Hugging Face calls it."""
    known = inspect.signature(model.forward).parameters
    options = {name: value for name, value in (("use_cache", True), ("logits_to_keep", 1)) if name in known}
    return model(*args, **named, **options)


def find_cache(out: Any) -> Any:
    """The keys and values that the model returns.

    Raises:
        WorkloadError: It returns none.
    """
    cache = out.get("past_key_values") if isinstance(out, Mapping) else getattr(out, "past_key_values", None)
    if cache is None:
        raise WorkloadError("the model takes 'past_key_values' but returns none; mode generate needs its cache")
    return cache


def choose_token(out: Any) -> torch.Tensor:
    """The most probable next token, from the scores in single precision."""
    scores = out.get("logits") if isinstance(out, Mapping) else getattr(out, "logits", out)
    scores = scores[0] if isinstance(scores, (tuple, list)) else scores
    if not isinstance(scores, torch.Tensor) or scores.dim() != 3:
        found = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
        raise WorkloadError(f"mode generate needs scores of shape batch, tokens, vocabulary; the model returns {found}")
    return scores[:, -1].to(torch.float32).argmax(-1)


def _cut(both: Workload, first: Workload) -> Workload:
    """The second of two steps that were captured together."""
    begin = len(first.operators)
    sources = tuple(tuple(each - begin for each in own if each >= begin) for own in both.sources[begin:])
    return replace(
        both,
        operators=both.operators[begin:],
        layers=both.layers[begin:],
        views=both.views[begin:],
        sources=sources,
    )


def _strip(layer: str) -> str:
    return layer.removeprefix(_INNER).removeprefix(".")
