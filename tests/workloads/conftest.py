"""Lets torchvision be used with a version of PyTorch it was not built for."""

import importlib.util
import sys
from pathlib import Path

import torch


def declare_torchvision() -> torch.library.Library | None:
    """Find it where ``make test`` puts it, and declare the operators that its import asks for and cannot find."""
    sys.path.append(str(Path(sys.prefix) / "torchvision"))
    if importlib.util.find_spec("torchvision") is None:
        return None
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
        return library
    return None


_KEPT = declare_torchvision()
