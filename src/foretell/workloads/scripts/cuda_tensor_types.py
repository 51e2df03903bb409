"""The old names of tensors on the GPU, such as ``torch.cuda.FloatTensor``, which create, convert and check."""

from typing import Any

import torch

_DTYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
    "Bool": torch.bool,
}  # fmt: skip
_PREFIX, _SUFFIX = "torch.cuda.", "Tensor"


class CudaTensorType(type):
    """The type of tensors on the GPU with one ``dtype``."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, **_kwargs: Any) -> Any:
        """A tensor of this size, or with these values."""
        return getattr(torch, cls.__name__)(*args).to("cuda")

    def __instancecheck__(cls, value: object) -> bool:
        """Whether a value is such a tensor."""
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype is cls.dtype


CUDA_TENSOR_TYPES = {
    f"{name}{_SUFFIX}": CudaTensorType(f"{name}{_SUFFIX}", (), {"dtype": dtype, "__module__": "torch.cuda"})
    for name, dtype in _DTYPES.items()
}


def find_tensor_type(value: object) -> CudaTensorType | None:
    """The type that a script names: itself, or as ``"torch.cuda.FloatTensor"``."""
    if isinstance(value, str) and value.startswith(_PREFIX):
        return CUDA_TENSOR_TYPES.get(value.removeprefix(_PREFIX))
    return value if isinstance(value, CudaTensorType) else None


def name_tensor_type(dtype: torch.dtype) -> str:
    """The old name of a type of tensors on the GPU."""
    return next((f"{_PREFIX}{name}" for name, each in CUDA_TENSOR_TYPES.items() if each.dtype is dtype), str(dtype))
