"""Passes over memory by the figures of the pass and of the device: the shortest time, and what makes it longer."""

from collections.abc import Sequence

import numpy as np

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels.kernel_calls import MemoryPass, keep_last
from foretell.steps.kernels.sustained_peaks import find_sustained

LAUNCH_S = 2.0e-6  # shortest kernel
_REACHED, _REACHED_BEFORE_2017 = 0.88, 0.76  # of the bandwidth that makers publish
_HELD = 0.5  # of L2, which is in two parts on large chips and holds other data too
_CACHE_GAIN = 3.0  # bandwidth of L2 to that of memory, about
_FASTEST = 8.0  # L2 is never faster than so many times the memory
_LARGE = 4.0  # passes of so many times L2 cannot profit from it
_BLOCK = 1024.0  # elements of a block of threads

# Kinds by how they read memory. Other kinds read and write element by element.
CLASSES = {
    "normalization": ("batch_norm", "instance_norm", "group_norm", "native_batch_norm", "sync_batch_norm"),
    "row_norm": ("layer_norm", "rms_norm", "local_response_norm"),
    "softmax": ("softmax", "log_softmax", "softmin", "gumbel_softmax"),
    "loss": ("cross_entropy", "nll_loss", "binary_cross_entropy_with_logits", "mse_loss", "l1_loss", "kl_div"),
    "reduction": (
        "sum", "mean", "adaptive_avg_pool2d", "adaptive_avg_pool1d", "amax", "amin", "max", "min", "norm", "normalize",
        "var", "std", "var_mean", "prod", "logsumexp", "argmax", "argmin", "all", "any", "linalg_vector_norm",
        "clip_grad_norm_", "_foreach_norm", "adaptive_max_pool2d", "cumsum", "topk", "sort",
    ),
    "window": (
        "max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d", "max_pool3d", "avg_pool3d", "interpolate", "unfold",
        "fold", "grid_sample", "upsample",
    ),
    "gather": (
        "index", "embedding", "index_select", "gather", "scatter", "scatter_add", "index_add", "index_put",
        "embedding_bag", "take_along_dim", "masked_fill", "where", "masked_select",
    ),
    "copy": (
        "clone", "copy_", "to", "cat", "stack", "reshape", "flatten", "pad", "roll", "chunk", "view", "repeat", "split",
        "repeat_interleave", "expand", "flip", "permute", "transpose", "contiguous", "pixel_shuffle", "tile",
    ),
    "random": ("dropout", "bernoulli_", "rand", "randn", "native_dropout", "dropout2d", "stochastic_depth"),
}  # fmt: skip
CLASS_OF = {kind: name for name, kinds in CLASSES.items() for kind in kinds}
CLASS_NAMES = (*CLASSES, "update", "element")


def find_class(call: MemoryPass) -> str:
    """How a pass reads memory."""
    found = CLASS_OF.get(call.kind)
    if found is None:
        return "update" if call.kind.startswith(("_foreach", "_fused", "foreach")) else "element"
    return found


@keep_last
def _stack(calls: Sequence[MemoryPass]) -> Floats:
    rows = [(call.elements, call.row, call.bytes_moved, call.flops, call.kernels, call.backward) for call in calls]
    return np.array(rows, dtype=float).reshape(-1, 6).T


@keep_last
def _number_classes(calls: Sequence[MemoryPass]) -> Floats:
    return np.array([CLASS_NAMES.index(find_class(call)) for call in calls], dtype=float)


class PassFigures:
    """Figures of passes on a device, a column each."""

    def __init__(self, calls: Sequence[MemoryPass], device: Device) -> None:
        elements, row, moved, self.flops, kernels, self.backward = _stack(calls)
        self.elements, self.row = np.maximum(elements, 1.0), np.maximum(row, 1.0)
        self.moved, self.kernels = np.maximum(moved, 1.0), np.maximum(kernels, 1.0)
        self.classes = _number_classes(calls)
        self.device = device
        self.each = self.moved / self.kernels  # bytes of one kernel
        self.launch = self.kernels * LAUNCH_S / find_sustained(device) ** 0.5  # a lower clock
        self.streaming = self.moved / device.bandwidth_bytes

    @property
    def cached(self) -> Floats:
        """How much of a kernel's data L2 holds, from 0 to 1."""
        if not self.device.l2_bytes:
            return np.zeros_like(self.each)
        return np.asarray(1 / (1 + (self.each / (_HELD * self.device.l2_bytes)) ** 3))

    def name_limits(self) -> list[str]:
        """What limits each pass: ``launch``, ``cache`` or ``memory``."""
        names = np.where(self.cached > 0.5, "cache", "memory")
        return [str(name) for name in np.where(self.streaming < self.launch, "launch", names)]

    def find_seconds(self) -> Floats:
        """Launches, then bytes at the bandwidth of memory or of L2, with as many units as have work."""
        faster = 1 + (_CACHE_GAIN - 1) * self.cached
        busy = np.minimum(1.0, self.elements / (_BLOCK * self.device.units))
        share = _REACHED_BEFORE_2017 if 0 < self.device.year < 2017 else _REACHED
        reached = share * faster * np.maximum(busy, 0.05) ** 0.5
        return np.asarray(self.launch + self.streaming / reached)

    def find_least(self) -> Floats:
        """What no pass can go below: memory's bandwidth, or that of L2 where it may hold the data."""
        large = self.each > _LARGE * max(self.device.l2_bytes, 2**20)
        return np.asarray(self.launch / 4 + self.streaming / np.where(large, 1.0, _FASTEST))

    def describe(self) -> Floats:
        """Columns for a correction: figures of the pass relative to those of the device."""
        device = self.device
        log = np.log2
        waves = self.elements / self.kernels / (_BLOCK * device.units)
        cache = device.l2_bytes or 4 * 2**20
        return np.column_stack(
            [
                log(self.streaming / self.kernels * 1e6 + 1e-3),
                np.clip(log(self.each / cache), -12, 8),
                np.clip(log(waves), -8, 10),
                log(self.row),
                np.clip(log(self.elements / self.row / device.units), -8, 14),
                log(self.kernels),
                self.backward,
                np.clip(log((self.flops + 1) / self.moved), -10, 4),
                self.classes,
            ]
        )
