"""Predicts the times of convolutions on any GPU."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels.convolution_physics import GROUP_COLUMNS, ConvolutionFigures, find_type
from foretell.steps.kernels.corrected_times import CorrectedTimeModel, Figures
from foretell.steps.kernels.kernel_calls import Convolution
from foretell.steps.kernels.learned_factors import Path


class ConvolutionTimeModel(CorrectedTimeModel[Convolution]):
    """Implicit matrix products on tiles, Winograd's algorithm, depthwise kernels and groups; corrected by shape.

    Convolutions were measured one by one in single precision only. In matrix units (TF32 and half precision) the
    physics decides, and levels from whole models. For :meth:`with_levels`: ``convolution``; ``convolution/TYPE`` with
    the type that the device computes in (``fp32``, ``tf32``, ``fp16``, ``bf16``); ``convolution/TYPE/NCHW`` or
    ``/NHWC`` by layout; ``convolution/TYPE/CLASS`` with ``dense``, ``grouped`` or ``depthwise``; each also with
    ``/forward``, ``/data`` or ``/weights`` (the gradients) behind it.
    """

    kind = "convolution"
    most_log = 1.5
    # Groups that run one after the other are up to fifty times slower where cuDNN chooses its plain kernel.
    forests: ClassVar = {"grouped": 4.0}
    forest_columns = GROUP_COLUMNS
    tree_settings: ClassVar = {
        "max_iter": 300,
        "learning_rate": 0.07,
        "max_leaf_nodes": 31,
        "min_samples_leaf": 15,
        "l2_regularization": 2.0,
        "max_features": 0.4,
    }

    def build_figures(self, calls: Sequence[Convolution], device: Device) -> ConvolutionFigures:
        return ConvolutionFigures(calls, device)

    def describe(self, calls: Sequence[Convolution], figures: Figures) -> Floats:
        assert isinstance(figures, ConvolutionFigures)
        return figures.describe()

    def name_path(self, call: Convolution, device: Device) -> Path:
        return ("convolution", find_class(call), call.direction, find_type(call.precision, device))

    def trust(self, figures: Figures) -> Floats:
        """What was learned outside matrix units does not hold in them."""
        assert isinstance(figures, ConvolutionFigures)
        learned = ~figures.matrix | (figures.depthwise & (figures.direction == 0))
        return np.where(learned, 1.0, 0.0)

    def name_levels(self, call: Convolution, device: Device) -> tuple[str, ...]:
        typed = f"convolution/{find_type(call.precision, device)}"
        layout = "NHWC" if call.channels_last else "NCHW"
        names = ("convolution", typed, f"{typed}/{layout}", f"{typed}/{find_class(call)}")
        return tuple(name + behind for name in names for behind in ("", f"/{call.direction}"))

    def name_parts(self, calls: Sequence[Convolution]) -> list[str]:
        return [find_class(call) for call in calls]

    def name_regimes(self, calls: Sequence[Convolution], figures: Figures) -> list[Path]:
        assert isinstance(figures, ConvolutionFigures)
        types = figures.precision
        return [
            (find_class(call), f"{kind} {limit}", call.direction, _name_window(call))
            for call, kind, limit in zip(calls, types, figures.name_limits(), strict=True)
        ]

    def find_precision(self, call: Convolution, device: Device) -> str:
        return find_type(call.precision, device)


def find_class(call: Convolution) -> str:
    """How a convolution connects channels: ``dense``, ``grouped`` or ``depthwise``."""
    if call.groups == 1:
        return "dense"
    return "depthwise" if call.groups == call.channels else "grouped"


def _name_window(call: Convolution) -> str:
    """Windows of 1 x 1 and of 3 x 3 have algorithms of their own."""
    known = call.kernel in ((1, 1), (3, 3))
    return f"{call.kernel[0]}/{min(call.stride, 2)}" if known else "other"
