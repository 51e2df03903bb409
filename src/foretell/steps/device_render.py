"""Renders devices: a table of all, and every figure of one."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group

from foretell.core.devices import Device, list_precisions
from foretell.core.render.phrases import clean_line, count, render_scaled
from foretell.core.render.tables import (
    BAD,
    HEADING,
    QUIET,
    FirstThatFits,
    add_cells,
    build_facts,
    build_line,
    build_table,
    stack,
)
from foretell.core.serialization import to_record
from foretell.core.units import render_bytes, render_duration, render_rate
from foretell.measure.other_load import OtherLoad
from foretell.steps.calibration import CalibratedDevice
from foretell.steps.kernels.calibration_file import Calibration
from foretell.steps.step_results import KnownDevice

Record = dict[str, Any]

_TIMES_IN_FULL = {
    "shipped": "in single precision, for --method replay and others",
    "learned": "learned on this machine",
    "calibrated": "kernels, by 'foretell device calibrate'",
    "": "",
}
_KERNELS = (
    "Kernels: measured on the device, on similar ones (of its architecture), or predicted by its figures only; "
    "calibrated or learned on this machine."
)
_PEAKS = ("fp32", "fp16", "bf16", "fp8")
_TERA = 1e12
_REPEAT = "Measure again while nothing else uses the machine: these times may be too long."
_MOST_GPU_BUSY = 0.05  # before anything was measured
_MOST_SPREAD = 0.1  # of repeats of a kernel


def render_devices(devices: Iterable[KnownDevice]) -> Group:
    """Devices with their figures, and whether steps were measured on them."""
    numbers = (*_PEAKS, "Memory", "Bytes/s")
    wide = build_table("Device", "Architecture", *numbers, "Kernels", numbers=numbers, whole=["Device"])
    narrow = build_table("Device", *numbers, "Kernels", numbers=numbers, whole=["Device"])
    for known in devices:
        device, cells = known.device, _list_cells(known)
        add_cells(wide, device.name, device.architecture or device.kind, *cells)
        add_cells(narrow, device.name, *cells)
    return stack(
        FirstThatFits(wide, narrow),
        build_line("Peaks of matrix products in TFLOP/s, dense. 'foretell device show NAME' has all figures.", QUIET),
        build_line(_KERNELS, QUIET),
        build_line(
            "'foretell device calibrate' measures the GPU of this machine, 'foretell device learn' also a CPU.", QUIET
        ),
    )


def _list_cells(known: KnownDevice) -> tuple[str, ...]:
    device = known.device
    return (
        *(_render_peak(device, precision) for precision in _PEAKS),
        render_bytes(device.memory_bytes),
        render_scaled(device.bandwidth_bytes),
        _describe_evidence(known),
    )


def _describe_evidence(known: KnownDevice) -> str:
    """What was done here, else what its products are predicted from in half precision, or in what it has."""
    if known.times in ("calibrated", "learned") or not known.evidence:
        return known.times
    return next(known.evidence[each] for each in ("bf16", "fp16", "fp32") if each in known.evidence)


def _render_peak(device: Device, precision: str) -> str:
    peak = device.find_peak(precision)
    return "" if peak is None else _round(peak / _TERA)


def _round(number: float) -> str:
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.3g}" if number >= 0.1 else f"{number:.2f}"


def render_device(known: KnownDevice, names: Sequence[str] = ()) -> Group:
    """Every figure of a device with its source; ``names`` are others that it is known by."""
    device = known.device
    title = f"{device.name}: {' '.join(filter(None, (device.vendor, device.architecture, device.kind)))}"
    peaks = build_table("Type", "TFLOP/s", "Products run in", numbers=["TFLOP/s"])
    if device.kind == "gpu":
        for precision in list_precisions(device):
            add_cells(peaks, precision, _render_peak(device, precision), _describe_units(device, precision))
    else:
        add_cells(peaks, "fp32", _render_peak(device, "fp32"), "cores")
    return stack(build_line(title, HEADING), peaks, build_facts(_list_facts(known, names)))


def _describe_units(device: Device, precision: str) -> str:
    """Where products of a type run; those of older devices have the rate of single precision."""
    peak = dict(device.matrix_flops).get(precision)
    if peak is None or (precision != "fp32" and peak <= device.peak_flops):
        return "the units of single precision"
    return "matrix units"


def _list_facts(known: KnownDevice, names: Sequence[str]) -> list[tuple[str, str]]:
    device = known.device
    return [
        ("fp32 outside matrix units", f"{_round(device.peak_flops / _TERA)} TFLOP/s"),
        ("Memory", f"{render_bytes(device.memory_bytes)} at {_render_bandwidth(device.bandwidth_bytes)}"),
        ("L2 cache", render_bytes(device.l2_bytes) if device.l2_bytes else ""),
        ("Units", str(device.units)),
        ("Clock", f"{device.clock_hz / 1e6:,.0f} MHz" if device.clock_hz else ""),
        ("Link inside a node", _render_link(device.link_bytes)),
        ("Network between nodes", _render_link(device.network_bytes)),
        ("Power", f"{device.power_w:,.0f} W" if device.power_w else ""),
        ("Year", str(device.year) if device.year else ""),
        ("Source", clean_line(device.source)),
        ("Matrix products", ", ".join(f"{precision} {each}" for precision, each in known.evidence.items())),
        ("Steps measured", _TIMES_IN_FULL[known.times]),
        ("Also known as", ", ".join(map(clean_line, names))),
    ]


def _render_bandwidth(rate: float) -> str:
    return f"{rate / 1e9:,.0f} GB/s" if rate >= 1e9 else render_rate(rate)


def _render_link(rate: float) -> str:
    return f"{rate / 1e9:.3g} GB/s in each direction" if rate else ""


def build_device_record(known: KnownDevice, names: Sequence[str] = ()) -> Record:
    """A device with its figures, the types it has, and whether steps were measured on it."""
    device = known.device
    figures: Record = to_record(device)
    figures["matrix_flops"] = dict(device.matrix_flops)
    record: Record = {"device": figures, "precisions": list(list_precisions(device)), "times": known.times}
    record["evidence"] = dict(known.evidence)
    return {**record, "also": list(names)} if names else record


# Calibrations


def render_calibrated(found: CalibratedDevice) -> Group:
    """What was measured, how steady it was, and how to use it."""
    known = found.calibration
    counts = Counter(each.kind.replace("_", " ") for each in known.kernels)
    facts = [
        ("Kernels", ", ".join(f"{number} {kind}" for kind, number in counts.most_common())),
        ("Not possible", count(known.skipped, "kernel") if known.skipped else ""),
        ("Not measured", f"{count(found.left, 'kernel')}; a larger --budget continues" if found.left else ""),
        ("Spread of repeats", f"{known.spread:.1%}, the median"),
        ("Host", f"{known.host_ratio:.2f} times the usual time of a launch" if known.host_ratio else ""),
        ("Other load", _describe_load(known)),
        ("Clock", f"{known.find_worst('clock_mhz'):,.0f} MHz at the end" if known.find_worst("clock_mhz") else ""),
        ("Versions", ", ".join(f"{name} {value}" for name, value in known.facts.items())),
    ]
    took = render_duration(known.seconds)
    return stack(
        build_line(f"{found.device.name}: {count(len(known.kernels), 'kernel')} measured in {took}.", HEADING),
        build_facts(facts),
        *([build_line(_REPEAT, BAD)] if _is_bad(found) else []),
        build_line(f"Saved in {found.path}. Predictions here use it; elsewhere, name the file:"),
        build_line(f"foretell workload predict --device {found.device.name} --calibration {found.path}"),
    )


def _describe_load(known: Calibration) -> str:
    """What other processes used of the processor and of the GPU."""
    cores = f"{known.find_worst('busy_cores'):.1f} of {known.find_worst('cores'):.0f} cores"
    busy, others = known.find_worst("gpu_busy"), known.find_worst("gpu_others")
    parts = (cores, f"{busy:.0%} of the GPU before" if busy else "", "others compute on the GPU" if others else "")
    return ", ".join(filter(None, parts))


def _is_bad(found: CalibratedDevice) -> bool:
    """Whether other processes, or an unsteady clock, changed the times."""
    known = found.calibration
    load = OtherLoad(busy_cores=known.find_worst("busy_cores"), cores=round(known.find_worst("cores")), threads=1)
    shared = known.find_worst("gpu_busy") > _MOST_GPU_BUSY or known.find_worst("gpu_others") > 0
    return known.spread > _MOST_SPREAD or load.is_busy or shared


def describe_calibrating(known: Calibration, chosen: int, budget_s: float) -> str:
    """The progress of measuring."""
    spent = f"{render_duration(known.seconds)} of {render_duration(budget_s)}"
    return f"Measured {len(known.kernels)} of {count(chosen, 'kernel')}, {spent}"


def build_calibration_record(found: CalibratedDevice) -> Record:
    """What was measured, without the kernels themselves: they are in the file."""
    known = found.calibration
    return {
        "device": known.device.name,
        "kernels": dict(Counter(each.kind for each in known.kernels)),
        "skipped": known.skipped,
        "left": found.left,
        "seconds": known.seconds,
        "spread": known.spread,
        "host_ratio": known.host_ratio,
        "busy": _is_bad(found),
        "facts": dict(known.facts),
        "conditions": [dict(each) for each in known.conditions],
        "file": str(found.path),
    }
