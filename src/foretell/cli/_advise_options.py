"""Options of ``foretell advise``, and how their values are read: the mistakes of all of them are listed at once."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from foretell.cli._click import combine
from foretell.cli._options import store_option
from foretell.cli._places import find_kept_folder, find_site_files, find_store
from foretell.core.errors import ForetellError, Mistake, SpecError

if TYPE_CHECKING:
    from foretell.advice.advise_api import AdviceOptions
    from foretell.advice.policy import Policy
    from foretell.advice.training_plan import TrainingPlan
    from foretell.core.site import Site

T = TypeVar("T")

length_options = combine(
    click.option("--epochs", type=float, help="Epochs of the training; default: as the script shows them."),
    click.option("--steps", type=int, help="Steps of the optimizer in the whole training, instead of epochs."),
    click.option("--samples", type=int, help="Examples of an epoch; default: as the script shows them."),
    click.option(
        "--batch-per-gpu", is_flag=True, help="Each GPU keeps the batch: a step of several GPUs has more examples."
    ),
    click.option(
        "--keep-batch", is_flag=True, help="Divide the batch of a script among the GPUs; give it the smaller one."
    ),
)
job_options = combine(
    click.option("--startup", help="Time until the first step; default: 45 s (15 s to 3 min)."),
    click.option(
        "--evaluation", help="For each epoch: 2min, or a share of its steps such as 5%; default: as in the script."
    ),
    click.option("--checkpoints", type=click.IntRange(min=0), help="Checkpoints; default: as the script shows them."),
    click.option("--checkpoint-time", help="Time of one; default: weights and optimizer states at 1 GB/s."),
    click.option("--load-per-batch", help="Time in which the loaders of one process make a batch, such as 80ms."),
    click.option(
        "--workers", type=click.IntRange(min=0), help="Loaders for each GPU; default: the script's own, or 4."
    ),
)

run_options = combine(
    store_option,
    click.option("--no-runs", is_flag=True, help="Use no measured runs, of the store or of the accounting."),
    click.option("--then-run", is_flag=True, help="Also run some steps of the training here, and answer again."),
    click.option(
        "--job", "jobs", multiple=True, metavar="ID", help="A job of this training that ended, if its name was changed."
    ),
)


class _Reader:
    """Reads options, and collects the mistakes of all of them."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.errors: list[ForetellError] = []
        self.mistakes: list[Mistake] = []

    def read(self, name: str, parse: Callable[[str], T]) -> T | None:
        """An option's value; nothing where it is not given or cannot be read."""
        text = self.given[name]
        try:
            return None if text is None else parse(text)
        except ValueError as exc:
            expected = str(exc).removeprefix(f"{text!r} is not ")
            self.mistakes.append(Mistake(place=f"--{name.replace('_', '-')}", found=repr(text), expected=expected))
        return None

    def find(self, place: str, name: str, find: Callable[[], T]) -> T | None:
        """What an option names."""
        try:
            return find()
        except ForetellError as exc:
            self.errors.append(exc)
            alone = [Mistake(place=place, found=repr(name), expected=str(exc))]
            self.mistakes += exc.mistakes if isinstance(exc, SpecError) else alone
        return None

    def check(self) -> None:
        """Refuse all mistakes at once; one that has an error of its own is that error."""
        if len(self.errors) == len(self.mistakes) == 1:
            raise self.errors[0]
        if self.mistakes:
            raise SpecError("options", self.mistakes)


def read_advice_options(given: dict[str, Any]) -> dict[str, Any]:
    """The plan, the sites, the limits and how they are searched."""
    reader = _Reader(given)
    found = {"plan": _read_plan(reader), "sites": _read_sites(reader), "policy": _read_policy(reader)}
    search = _read_search(reader)
    reader.check()
    return {**found, "search": search}


def parse_run(text: str | None) -> tuple[str, ...]:
    """The words of ``--run``.

    Raises:
        SpecError: A quotation does not end.
    """
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as exc:
        expected = "a command whose quotation marks are pairs, as in 'python train.py --name \"my run\"'"
        raise SpecError("options", [Mistake(place="--run", found=repr(text), expected=expected)]) from exc


def _read_plan(reader: _Reader) -> "TrainingPlan":
    from foretell.advice.training_plan import TrainingPlan
    from foretell.core.units import parse_duration

    given = reader.given
    if given["batch_per_gpu"] and given["keep_batch"]:
        expected = "one of them: each GPU keeps the batch, or they divide it"
        reader.mistakes.append(Mistake(place="--keep-batch", found="with --batch-per-gpu", expected=expected))
    share, evaluation_s = reader.read("evaluation", _parse_evaluation) or (None, None)
    return TrainingPlan(
        epochs=given["epochs"],
        steps=given["steps"],
        samples=given["samples"],
        startup_s=reader.read("startup", parse_duration),
        evaluation_share=share,
        evaluation_s=evaluation_s,
        checkpoints=given["checkpoints"],
        checkpoint_s=reader.read("checkpoint_time", parse_duration),
        load_s=reader.read("load_per_batch", parse_duration),
        workers=given["workers"],
        batch_per_gpu=True if given["batch_per_gpu"] else False if given["keep_batch"] else None,
    )


def _parse_evaluation(text: str) -> tuple[float | None, float | None]:
    """A share of the steps, or seconds."""
    from foretell.core.units import parse_duration, parse_share

    try:
        return (parse_share(text), None) if text.strip().endswith("%") else (None, parse_duration(text))
    except ValueError as exc:
        raise ValueError(f"{exc}; or a share of an epoch's steps, such as 5%") from exc


def _read_sites(reader: _Reader) -> "list[Site]":
    from foretell.advice.site_lookup import find_site
    from foretell.advice.sites import load_sites

    given = reader.given
    files = find_site_files(given["site_file"])
    compared = list(dict.fromkeys(name.strip() for name in (given["compare"] or "").split(",") if name.strip()))
    if compared and click.get_current_context().get_parameter_source("site") is ParameterSource.COMMANDLINE:
        expected = "one of them; --compare names all sites"
        reader.mistakes.append(Mistake(place="--compare", found="with --site", expected=expected))
    found: list[Site] = []
    for name in compared or [given["site"]]:
        place = "--compare" if compared else "--site"
        if name.endswith(".toml"):
            found += reader.find(place, name, lambda path=Path(name): load_sites([path])) or ()  # type: ignore[misc]
        else:
            site = reader.find(place, name, lambda name=name: find_site(name, files=files))  # type: ignore[misc]
            found += [site] if site is not None else []
    return found


def _read_policy(reader: _Reader) -> "Policy | None":
    from foretell.advice.policy import choose_policy
    from foretell.core.units import parse_duration, parse_money

    max_time_s, max_cost = reader.read("max_time", parse_duration), reader.read("max_cost", parse_money)
    prefer = reader.given["prefer"]
    return reader.find(
        "--prefer", prefer, lambda: choose_policy(max_time_s=max_time_s, max_cost=max_cost, prefer=prefer)
    )


def _read_search(reader: _Reader) -> "AdviceOptions":
    from foretell.advice.advise_api import LEVEL, RISK, AdviceOptions
    from foretell.core.layouts import parse_layout
    from foretell.core.units import parse_share

    given = reader.given
    layout = given["layout"]
    if given["no_runs"] and (given["jobs"] or given["then_run"]):
        expected = "one of them: runs are used, or they are not"
        reader.mistakes.append(Mistake(place="--no-runs", found="with --job or --then-run", expected=expected))
    if layout is not None:
        reader.find("--layout", layout, lambda: parse_layout(layout))
    return AdviceOptions(
        layout=layout,
        level=reader.read("level", parse_share) or LEVEL,
        risk=reader.read("risk", parse_share) or RISK,
        folder=find_kept_folder(),
        cpu=reader.given["cpu"],
        runs=() if given["no_runs"] else None,
        store=find_store(given["store"]),
        jobs=given["jobs"],
        then_run=given["then_run"],
    )
