"""The words for what a framework is asked to do: one for each thing, however it is spelled in code or in recordings."""

_WORDS = {
    "add": "__add__",
    "__radd__": "__add__",
    "add_": "__iadd__",
    "sub": "__sub__",
    "subtract": "__sub__",
    "sub_": "__isub__",
    "mul": "__mul__",
    "multiply": "__mul__",
    "__rmul__": "__mul__",
    "mul_": "__imul__",
    "div": "__truediv__",
    "true_divide": "__truediv__",
    "div_": "__itruediv__",
    "pow": "__pow__",
    "neg": "__neg__",
    "__matmul__": "matmul",
    "aten::clone": "clone",
    "contiguous": "clone",
    "aten::index": "index",
    "__getitem__": "index",
    "relu_": "relu",
    "relu6": "hardtanh",
    "silu_": "silu",
    "hardswish_": "hardswish",
    "hardtanh_": "hardtanh",
    "hardsigmoid_": "hardsigmoid",
    "sigmoid_": "sigmoid",
    "tanh_": "tanh",
    "dropout_": "dropout",
    "concat": "cat",
    "concatenate": "cat",
    "type": "to",
    "float": "to",
    "half": "to",
    "bfloat16": "to",
    "type_as": "to",
}


def spell(name: str) -> str:
    """Our word for an operator of the forward and the backward phase."""
    return _WORDS.get(name, name)
