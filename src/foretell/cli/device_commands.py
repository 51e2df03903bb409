"""The commands of ``foretell device`` and ``foretell machine``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foretell.cli._click import Group, argument
from foretell.cli._options import PATH, json_option, parse_option, unused_store_option
from foretell.cli._output import note, open_console, show, show_json, write_text
from foretell.cli._places import find_kept_folder, note_unused_store
from foretell.steps import METHODS

if TYPE_CHECKING:
    from foretell.steps.step_results import LearnedDevice

device = Group("device", help="List the devices whose training steps can be predicted, and learn your own.")


@device.command("list", examples=["foretell device list"])
@unused_store_option
@json_option
def list_devices(
    store: str | None,
    as_json: bool,
) -> None:
    """List all devices with their figures; those on which steps were measured come first."""
    from foretell.steps import api
    from foretell.steps.device_render import build_device_record, render_devices

    note_unused_store(store)
    devices = api.list_devices(folder=find_kept_folder())
    if as_json:
        show_json([build_device_record(known) for known in devices])
    else:
        show([render_devices(devices)])


@device.command("show", examples=["foretell device show H100", "foretell device show my-gpu.toml --json"])
@argument("name", help="A device in any usual spelling, or a TOML file that describes one.")
@json_option
def show_device(
    name: str,
    as_json: bool,
) -> None:
    """Show every figure of a device, and where it comes from."""
    from foretell.core.devices import list_other_names
    from foretell.steps import api
    from foretell.steps.device_render import build_device_record, render_device

    known = api.get_known_device(name, folder=find_kept_folder())
    names = list_other_names(known.device)
    if as_json:
        show_json(build_device_record(known, names))
    else:
        show([render_device(known, names)])


@device.command("learn", examples=["foretell device learn --budget 5m", "foretell device learn --method ets"])
@click.option("--budget", default="5m", help="Total time to measure; a larger budget continues.")
@click.option("--name", help="The name of the device; default: that of its driver, or cpu.")
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    help="The method to fit; default: replay for a GPU, serial for a CPU.",
)
@click.option(
    "--profile",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Fit on profiles of one device instead of measuring; repeatable.",
)
@unused_store_option
@json_option
def learn_device(
    budget: str,
    name: str | None,
    method: str | None,
    profile: tuple[Path, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """Measure small networks on this machine, and fit a model that predicts others on it."""
    from foretell.core.units import parse_duration
    from foretell.steps.render import build_learned_record, render_learned

    budget_s = parse_option("--budget", parse_duration, budget)
    note_unused_store(store)
    if not profile:
        note(f"Measuring for {budget} in all; do not use this machine meanwhile. Ctrl-C keeps the measurements.")
    try:
        learned = _learn(budget_s, name=name, method=method, paths=profile)
    except KeyboardInterrupt:
        note("Stopped. The measurements are kept; the same command continues.")
        raise click.exceptions.Exit(130) from None
    if as_json:
        show_json(build_learned_record(learned))
    else:
        show([render_learned(learned)])


def _learn(budget_s: float, *, name: str | None, method: str | None, paths: Sequence[Path]) -> "LearnedDevice":
    from foretell.steps import api
    from foretell.steps.render import describe_learning

    with open_console(stderr=True).status("Fitting…" if paths else "Measuring…") as status:
        return api.learn_device(
            name=name,
            budget_s=budget_s,
            method=method,
            profiles=[api.load_profile(path) for path in paths],
            folder=find_kept_folder(),
            on_progress=lambda known: status.update(
                describe_learning(
                    len(known.profiles), known.seconds, budget_s, known.loads[-1] if known.loads else None
                )
            ),
        )


@device.command(
    "calibrate",
    examples=["foretell device calibrate", "foretell device calibrate --budget 1m --output h100.jsonl"],
)
@click.option("--budget", default="2m", help="Total time to measure; a larger budget continues.")
@click.option("--device", "name", metavar="NAME", help="The GPU, by its name or a TOML file; default: by its driver.")
@click.option("--output", type=PATH, metavar="FILE", help="Also write the calibration here, to use it elsewhere.")
@json_option
def calibrate_device(
    budget: str,
    name: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure chosen kernels on this machine's GPU, so that predictions for it are measured and not by figures."""
    from foretell.core.units import parse_duration
    from foretell.steps import calibration as api
    from foretell.steps.device_render import build_calibration_record, describe_calibrating, render_calibrated

    budget_s = parse_option("--budget", parse_duration, budget)
    try:
        with open_console(stderr=True).status("Measuring…") as status:
            found = api.calibrate_device(
                name=name,
                budget_s=budget_s,
                folder=find_kept_folder(),
                output=output,
                on_progress=lambda known, count: status.update(describe_calibrating(known, count, budget_s)),
            )
    except KeyboardInterrupt:
        note("Stopped. The measured kernels are kept; the same command continues.")
        raise click.exceptions.Exit(130) from None
    if as_json:
        show_json(build_calibration_record(found))
    else:
        show([render_calibrated(found)])


machine = Group("machine", help="Show this machine, and measure how fast it is.")


@machine.command("bench", examples=["foretell machine bench --json > node.json"])
@click.option("--repeats", type=click.IntRange(min=1), default=5, help="Number of measurements; the median is used.")
@click.option("--output", type=PATH, help="Also write the figures to this file, as JSON.")
@json_option
def bench_machine(
    repeats: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure how long this machine takes for fixed work, to compare runs of different machines."""
    from foretell.core.serialization import render_json
    from foretell.measure import machine_benchmark as api
    from foretell.measure.render import render_bench

    note(f"Measuring {repeats} times; leave this machine alone meanwhile.")
    bench = api.bench_machine(repeats=repeats)
    if output is not None:
        write_text(output, f"{render_json(bench)}\n")
        note(f"Wrote {output}.")
    if as_json:
        show_json(bench)
    else:
        show([render_bench(bench)])


@machine.command("show", examples=["foretell machine show"])
@json_option
def show_machine(
    as_json: bool,
) -> None:
    """Show the facts that are stored with runs made here, and the benchmark if there is one."""
    from foretell.measure import machine_benchmark as api
    from foretell.measure.render import build_machine_record, render_machine

    machine, bench = api.describe_machine()
    if as_json:
        show_json(build_machine_record(machine, bench))
    else:
        show([render_machine(machine, bench)])
