"""Options that several commands share, and how their values are read."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from foretell.cli._click import Decorator, argument, combine
from foretell.core.errors import Mistake, SpecError

if TYPE_CHECKING:
    from foretell.core.app import Submission
    from foretell.core.devices import Device
    from foretell.steps.api import StepOptions

T = TypeVar("T")


class _PathType(click.Path):
    """click's type for paths, which itself fails on a null byte."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "\0" in str(value):
            self.fail(f"{value!r} is not a path: it contains a null byte", param, ctx)
        return super().convert(value, param, ctx)


PATH = _PathType(path_type=Path)

_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_CLUSTERS = "clusters"  # Slurm is asked about this one: no abbreviation may hide it
_AN_OPTION = "NAME=VALUE with the long name of an option of sbatch, for example qos=long; NAME alone for a flag"

app_argument = argument(
    "app", required=False, metavar="[APP]", help="The app's name or file; default: the nearest foretell.yaml."
)
store_option = click.option("--store", metavar="URL", help="The store: a file or a database URL. [env: FORETELL_STORE]")
unused_store_option = click.option("--store", metavar="URL", hidden=True)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
set_option = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the configuration; repeat for each."
)
level_option = click.option("--level", default="90%", help="Probability that the interval contains the true value.")
site_option = click.option("--site", default="local", help="The site to run on; 'foretell sites list' lists them.")
site_file_option = click.option(
    "--site-file",
    multiple=True,
    type=PATH,
    help="Your own site file; repeatable. [env: FORETELL_SITES]",
)
max_time_option = click.option("--max-time", help="Limit of the time, for example 2h.")
prefer_option = click.option(
    "--prefer",
    default="auto",
    help="cheapest, fastest, or auto: the fastest if only the cost is limited, else the cheapest.",
)
risk_option = click.option(
    "--risk",
    help="Probability that the first request is too small, in time or memory, such as 5%; default: at most 10%.",
)
retry_cost_option = click.option(
    "--retry-cost",
    type=click.FloatRange(min=0),
    help="Cost of a failed attempt in addition to its request, in multiples of the prediction; default: 1.",
)
extrapolate_option = click.option(
    "--extrapolate",
    is_flag=True,
    help="Also offer more than 4 times the cores, GPUs or nodes of the runs, and other architectures.",
)
partition_option = click.option(
    "--partition", help="The Slurm partition; default: that of the app file, or of the cluster."
)
account_option = click.option("--account", envvar="SBATCH_ACCOUNT", show_envvar=True, help="The account to charge.")
sbatch_option = click.option(
    "--option", multiple=True, metavar="NAME=VALUE", help="Another option of sbatch, such as qos=long; repeatable."
)
sample_option = click.option("--sample", is_flag=True, help="Also sample memory and GPUs inside the jobs, over time.")
force_option = click.option(
    "--force", is_flag=True, help="Replace the file even if Foretell did not write it, or it was edited."
)


def rows_option(default: int, help: str = "Lines of the table to show.") -> Decorator:
    """The option of tables that may be long."""
    return click.option("--rows", type=click.IntRange(min=1), default=default, help=help)


resource_options = combine(
    click.option("--cores", type=click.IntRange(min=1), help="Cores per node; default: as in most runs."),
    click.option("--gpus", type=click.IntRange(min=0), help="GPUs per node; default: as in most runs."),
    click.option("--nodes", type=click.IntRange(min=1), help="Nodes; default: as in most runs."),
)


def build_resources(cores: int | None, gpus: int | None, nodes: int | None) -> dict[str, int]:
    """The resources that were given."""
    given = {"cores": cores, "gpus": gpus, "nodes": nodes}
    return {name: count for name, count in given.items() if count is not None}


batch_option = click.option(
    "--batch", type=click.IntRange(min=1), help="The first dimension of every input; default: as in --input."
)


def _build_model_options(*, required: bool) -> Decorator:
    return combine(
        argument(
            "source",
            required=required,
            metavar="SOURCE" if required else "[SOURCE]",
            help="FILE.py:FACTORY, PACKAGE.MODULE:FACTORY, a Hugging Face config.json, or a .pt2 program.",
        ),
        click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="SHAPE",
            help="An input of the model, [NAME=]SHAPE[:DTYPE[:HIGH]], as in 32,3,224,224 or ids=8,128:int64:30522; "
            "NAME.KEY is a part of a dictionary. Repeat for each.",
        ),
        click.option(
            "--set", "settings", multiple=True, metavar="NAME=VALUE", help="An argument of the factory; repeatable."
        ),
    )


model_options = _build_model_options(required=True)
model_or_command_options = _build_model_options(required=False)  # of commands that also take a script, after --
training_options = combine(
    click.option(
        "--loss", default="auto", help="cross_entropy, mse, sum, own, or auto: the model's own loss if it has one."
    ),
    click.option(
        "--optimizer", default="sgd", help="sgd (with momentum), adam, adamw, adamw8bit, adagrad, rmsprop or adafactor."
    ),
    click.option(
        "--optimizer-implementation",
        "--implementation",
        "implementation",
        default="foreach",
        help="for-loop, foreach (PyTorch's default on a GPU) or fused.",
    ),
    click.option(
        "--precision",
        default="fp32",
        help="fp32, tf32; bf16, fp16 (amp) or fp8, mixed with others as by autocast; pure-bf16, pure-fp16. "
        "Other usual names are understood: float32, half, bfloat16.",
    ),
    click.option("--channels-last", is_flag=True, help="Images and filters have their channels last in memory."),
    click.option("--compile", is_flag=True, help="As compiled by torch.compile: element-wise operators are fused."),
    click.option("--accumulation", type=click.IntRange(min=1), default=1, help="Batches before each update."),
    click.option("--checkpointing", is_flag=True, help="Recompute activations in the backward phase."),
    click.option(
        "--recompute",
        default="all",
        help="With --checkpointing: all, every=N (of every N-th block), or cheap (all but products and attention).",
    ),
    click.option("--lora", metavar="r=RANK", help="Train low-rank adapters only: r=16 or r=16,targets=all-linear."),
    click.option("--freeze", "frozen", multiple=True, metavar="NAME", help="A layer or parameter that is not trained."),
)
mode_options = combine(
    click.option(
        "--mode",
        default="training",
        help="training, inference (forward only, without gradients), or generate: text by a causal language model.",
    ),
    click.option("--prompt", type=click.IntRange(min=1), help="Tokens of the prompt in mode generate; default: 512."),
    click.option("--new", type=click.IntRange(min=1), help="Tokens to generate in mode generate; default: 128."),
)

timeout_option = click.option("--timeout", default="30m", help="How long a script may take until it is recorded.")
_OF_MODELS = (  # parameters that a script sets itself
    "inputs", "settings", "batch", "loss", "optimizer", "implementation", "precision", "channels_last", "compile",
    "accumulation", "checkpointing", "recompute", "lora", "frozen", "mode", "prompt", "new",
)  # fmt: skip


def refuse_options_of_scripts(ctx: click.Context, source: str | None) -> None:
    """Refuse what a script sets itself.

    Raises:
        SpecError: with every such option that was given.
    """
    expected = "none together with a command: the script sets it. Change the script's own arguments"
    given = [
        Mistake(place=param.opts[0], found=_render_given(ctx.params[param.name]), expected=expected)
        for param in ctx.command.params
        if isinstance(param, click.Option)
        and param.name in _OF_MODELS
        and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    ]
    if source is not None:
        given.append(Mistake(place="SOURCE", found=repr(source), expected="either a model, or a command after --"))
    if given:
        raise SpecError("options", given)


def _render_given(value: object) -> str:
    return " ".join(map(repr, value)) if isinstance(value, tuple) else repr(value)


def read_timeout(source: str | None, timeout: str) -> float:
    """Seconds that a script may take; options that it sets itself are refused."""
    from foretell.core.units import parse_duration

    refuse_options_of_scripts(click.get_current_context(), source)
    return parse_option("--timeout", parse_duration, add_unit(timeout))


def add_unit(seconds: str) -> str:
    """A number without a unit is in seconds."""
    return f"{seconds}s" if re.fullmatch(r"[\d.]+", seconds) else seconds


def get_source(source: str | None) -> str:
    """The model of a command that also takes a script."""
    if source is None:
        raise click.UsageError("Missing argument 'SOURCE': a model, such as train.py:build_model, or -- and a command.")
    if source.endswith(".py"):
        command = click.get_current_context().command_path
        raise click.UsageError(
            f"{source!r} names no model. Write -- before the command of a script: {command} -- python {source}; "
            f"or name what builds the model: {source}:build_model"
        )
    return source


def read_devices(words: Iterable[str], figures: str | None, *, required: bool = True) -> "list[str | Device]":
    """Names from options that may each have several, and a device of the user's own."""
    from foretell.core.device_figures import parse_device_figures

    found: list[str | Device] = [name.strip() for word in words for name in word.split(",") if name.strip()]
    if figures is not None:
        found.append(parse_device_figures(figures))
    if not found and required:
        raise click.UsageError("Missing option '--device': a device, several as in H100,B200, or all.")
    return found


def build_step_options(**training: Any) -> "StepOptions":
    """How a model is trained, from the values of :func:`training_options`."""
    from foretell.steps import api
    from foretell.workloads.lora_options import parse_lora

    lora = training.pop("lora", None)
    return api.StepOptions(lora=parse_lora(lora) if lora else None, **training)


def build_submission(
    *, partition: str | None, account: str | None, options: Iterable[str] | None, sample: bool = False
) -> "Submission":
    """How runs are submitted to Slurm.

    Raises:
        SpecError: with every option that is none, or not to be given so.
    """
    from foretell.core.app import Submission

    pairs = [word.partition("=") for word in options or ()]
    further = {name: value for name, _, value in pairs}
    mistakes = _list_repeated("--option", (name for name, _, _ in pairs))
    mistakes += [mistake for name in further if (mistake := _find_option_mistake(name))]
    if mistakes:
        raise SpecError("options", mistakes)
    return Submission(partition=partition, account=account, options=further, sample=sample)


def _find_option_mistake(name: str) -> Mistake | None:
    from foretell.core.app import OWN_OPTIONS, describe_option, find_meant_option

    if not _OPTION.fullmatch(name):
        return Mistake(place="--option", found=repr(name), expected=_AN_OPTION)
    meant = find_meant_option(name, (*OWN_OPTIONS, _CLUSTERS))
    if meant is None or name == _CLUSTERS:
        return None
    expected = OWN_OPTIONS.get(meant, f"the full name {meant!r}")
    return Mistake(place="--option", found=describe_option(name, meant), expected=expected)


def parse_settings(settings: Iterable[str] | None) -> dict[str, str]:
    """``name=value`` words as a mapping.

    Raises:
        SpecError: with every word that is none, and every name that is given twice.
    """
    pairs = [(word, *word.partition("=")) for word in settings or ()]
    mistakes = [
        Mistake(place="--set", found=repr(word), expected="NAME=VALUE, for example epochs=100")
        for word, name, equals, _ in pairs
        if not (equals and name)
    ]
    mistakes += _list_repeated("--set", (name.strip() for _, name, _, _ in pairs))
    if mistakes:
        raise SpecError("options", mistakes)
    return {name.strip(): value for _, name, _, value in pairs}


def _list_repeated(option: str, names: Iterable[str]) -> list[Mistake]:
    """Names that an option was given more than once, with different values perhaps."""
    return [
        Mistake(place=option, found=f"{name!r} {times} times", expected="each name once")
        for name, times in Counter(names).items()
        if times > 1
    ]


def parse_option(name: str, parse: Callable[[str], T], text: str) -> T:
    """An option's value.

    Raises:
        SpecError: if it cannot be read.
    """
    try:
        return parse(text)
    except ValueError as exc:
        raise SpecError("options", [Mistake(place=name, found=repr(text), expected=_expect(text, exc))]) from None


def _expect(text: str, exc: ValueError) -> str:
    """``'5x' is not a duration; write for example 90s`` as what was expected."""
    return str(exc).removeprefix(f"{text!r} is not ")


def parse_optional(name: str, parse: Callable[[str], T], text: str | None) -> T | None:
    """An option's value; ``None`` if it was not given.

    Raises:
        SpecError: if it cannot be read.
    """
    return None if text is None else parse_option(name, parse, text)
