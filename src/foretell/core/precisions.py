"""The precisions of a step, and how people call them."""

import difflib

# Without "pure", half precision is mixed with float32 as PyTorch's autocast does; fp8 is mixed with bf16.
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "pure-bf16", "pure-fp16")
_WORDS = {
    "float32": "fp32",
    "float": "fp32",
    "single": "fp32",
    "full": "fp32",
    "f32": "fp32",
    "32": "fp32",
    "tensorfloat32": "tf32",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "16": "fp16",
    "amp": "fp16",
    "mixed": "fp16",
    "16-mixed": "fp16",
    "amp-fp16": "fp16",
    "bfloat16": "bf16",
    "amp-bf16": "bf16",
    "amp-bfloat16": "bf16",
    "bf16-mixed": "bf16",
    "float8": "fp8",
    "fp8-mixed": "fp8",
    "pure-bfloat16": "pure-bf16",
    "bf16-true": "pure-bf16",
    "pure-float16": "pure-fp16",
    "pure-half": "pure-fp16",
    "16-true": "pure-fp16",
}


def parse_precision(text: str) -> str:
    """The name of a precision from any of its usual names: ``fp32`` from ``float32`` or ``single``.

    Raises:
        ValueError: There is no such precision; the message lists what was expected, with the nearest name.
    """
    word = text.strip().lower().replace("_", "-").removeprefix("torch.")
    if word in PRECISIONS:
        return word
    if word in _WORDS:
        return _WORDS[word]
    near = difflib.get_close_matches(word, [*PRECISIONS, *_WORDS], n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"one of {', '.join(PRECISIONS)} (or float32, half, amp, bfloat16){meant}")
