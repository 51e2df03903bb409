"""Predicts the time of fused attention on any GPU."""

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from foretell.core.devices import Device
from foretell.core.workload import Floats
from foretell.steps.kernels.attention_physics import PARAMETERS, AttentionSizes, AttentionTimes, time_attention
from foretell.steps.kernels.device_rates import Rates
from foretell.steps.kernels.kernel_calls import FLASH_2, Attention
from foretell.steps.kernels.law_times import Described, LawTimeModel
from foretell.steps.kernels.physics_parameters import Parameter

# FlashAttention-2 does not use the asynchronous units of Hopper. PyTorch takes it there by default, and cuDNN's kernels
# are 1.7 to 2.3 times as fast for shapes of trainings: https://github.com/huggingface/transformers/pull/48163
_SLOWER = {"Hopper": 1.9}
_FEWEST_QUERIES = 64  # fewer, as in generated text, are limited by memory


class AttentionTimeModel(LawTimeModel[Attention]):
    """The tiles of an attention over the units of a device. The backward pass is by figures: nothing was measured."""

    kind: ClassVar[str] = "attention times"
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    columns: ClassVar[int] = 15
    place_columns: ClassVar[int] = 7

    def predict(self, calls: Sequence[Attention], device: Device) -> Floats:
        return super().predict(calls, device) * _find_slower(calls, device)

    def calibrate(self, calls: Sequence[Attention], device: Device, seconds: Floats) -> Self:
        return super().calibrate(calls, device, np.asarray(seconds, dtype=float) / _find_slower(calls, device))

    def stack(self, calls: Sequence[Attention]) -> AttentionSizes:
        return _stack(calls)

    def time(self, sizes: AttentionSizes, rates: Rates, theta: Floats) -> AttentionTimes:
        return time_attention(sizes, rates, theta)

    def relate(self, sizes: AttentionSizes, times: AttentionTimes, rates: Rates) -> Described:
        return Described(
            seconds=times.seconds,
            features=_build_features(sizes, times, rates),
            places=_build_places(sizes, times),
            least=4 * sizes.batch * sizes.heads * sizes.queries * sizes.keys_seen * sizes.width / rates.flops,
        )


def _find_slower(calls: Sequence[Attention], device: Device) -> Floats:
    """How much longer each takes by its library than by kernels for the device."""
    factor = _SLOWER.get(device.architecture, 1.0)
    affected = [call.library == FLASH_2 and call.queries > _FEWEST_QUERIES for call in calls]
    return np.where(affected, factor, 1.0)


def _stack(calls: Sequence[Attention]) -> AttentionSizes:
    values = np.array(
        [
            (
                *(call.batch, call.heads, call.heads / max(1, call.key_heads)),
                *(call.queries, call.keys, call.width, call.causal, call.backward),
            )
            for call in calls
        ],
        dtype=float,
    ).reshape(-1, 8)
    batch, heads, shared, queries, keys, width = np.maximum(values[:, :6], 1).T
    return AttentionSizes(
        batch=batch,
        heads=heads,
        shared=shared,
        queries=queries,
        keys=keys,
        width=width,
        causal=values[:, 6],
        backward=values[:, 7],
    )


def _build_features(sizes: AttentionSizes, times: AttentionTimes, rates: Rates) -> Floats:
    return np.stack(
        [
            np.log(times.compute_s / times.memory_s),
            np.log(times.seconds * 1e6),
            np.log(times.waves),
            times.waves / np.ceil(times.waves),
            np.log(times.tile_rows),
            np.log(times.parts),
            np.log(times.moved_bytes / rates.l2_bytes),
            *(
                np.log(each)
                for each in (sizes.batch, sizes.heads, sizes.shared, sizes.queries, sizes.keys, sizes.width)
            ),
            np.full(len(sizes.batch), float(rates.generation)),
            sizes.causal,
        ],
        axis=1,
    )


def _build_places(sizes: AttentionSizes, times: AttentionTimes) -> Floats:
    logs = [np.log(sizes.batch * sizes.heads), *(np.log(each) for each in (sizes.queries, sizes.keys, sizes.shared))]
    balance = np.clip(np.log(times.compute_s / times.memory_s), -3, 3) / 2
    return np.stack([*(each / 2.5 for each in logs), np.log(sizes.width), balance, np.log(times.waves) / 2], axis=1)
