"""Click commands with help in panels, and a group whose commands are imported when they are asked for."""

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from foretell.core.errors import NotFoundError

if TYPE_CHECKING:
    from rich.console import RenderableType

_NAMES_WIDTH = 34

Decorator = Callable[[Any], Any]


class Argument(click.Argument):
    """An argument with a help text of its own."""

    def __init__(self, *names: Any, help: str = "", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.help = help


def command(**settings: Any) -> Callable[[Callable[..., None]], "Command"]:
    """Declare a command of its function's name."""
    return click.command(cls=Command, **settings)


def argument(name: str, **settings: Any) -> Decorator:
    """Declare an argument with help, as :func:`click.option` declares an option."""
    return click.argument(name, cls=Argument, **settings)


def combine(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, in the order in which help shows them."""

    def apply(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


class Command(click.Command):
    """A command whose help shows arguments, options and examples in panels."""

    def __init__(self, *names: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.examples = examples

    def get_help(self, ctx: click.Context) -> str:
        return _render(self, ctx, ())


class LeadingCommand(Command):
    """A command that may be followed by ``--`` and a command of the user's, which it gets as ``command``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        try:
            left = super().parse_args(ctx, args[:place])
        except click.UsageError as exc:
            if place < len(args) or "unexpected extra argument" not in exc.message:
                raise
            hint = f"Write -- before the command of a script: {ctx.command_path} -- python train.py"
            raise click.UsageError(f"{exc.message}. {hint}", ctx) from exc
        ctx.params["command"] = tuple(args[place + 1 :])
        return left

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


class Group(click.Group):
    """A group of commands whose help shows them in a panel."""

    command_class = Command

    def list_summaries(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        """Each command's name with the first paragraph of its help."""
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None:
                yield name, summarise(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            similar = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {similar[0]!r}?" if similar else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        return _render(self, ctx, tuple(self.list_summaries(ctx)))


class Entry(NamedTuple):
    """A command that is not imported yet: the module that defines it under its name, and its summary."""

    module: str
    summary: str


class LazyGroup(Group):
    """A group that knows its commands' names and summaries, and imports only the command that runs."""

    def __init__(self, *names: Any, table: Mapping[str, Entry], **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def list_summaries(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        return ((name, entry.summary) for name, entry in self.table.items())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        command: click.Command = getattr(import_module(self.table[cmd_name].module), cmd_name)
        return command


def summarise(command: click.Command) -> str:
    """The first paragraph of a command's help, on one line."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _render(command: click.Command, ctx: click.Context, commands: tuple[tuple[str, str], ...]) -> str:
    # Imported here: commands that print JSON, or nothing, do not need it.
    from rich.console import Console
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"{command.get_usage(ctx)}\n", style="bold")]
    parts += [Text(f"{' '.join(paragraph.split())}\n") for paragraph in (command.help or "").split("\n\n") if paragraph]
    params = command.get_params(ctx)
    rows = [_describe(param) for param in params if isinstance(param, Argument)]
    parts += [_build_panel("Arguments", rows)] if rows else []
    options = [record for param in params if isinstance(param, click.Option) and (record := param.get_help_record(ctx))]
    parts.append(_build_panel("Options", [(names.replace(" RANGE", ""), text) for names, text in options]))
    parts += [_build_panel("Commands", list(commands))] if commands else []
    examples = command.examples if isinstance(command, Command) else ()
    parts += [_build_panel("Examples", [(example,) for example in examples])] if examples else []
    parts += [Text(f"\n{command.epilog}")] if command.epilog else []
    console = Console(highlight=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get().rstrip("\n")


def _describe(param: Argument) -> tuple[str, str]:
    name = (param.metavar or param.human_readable_name).strip("[].")
    return name, f"{param.help}{'  [required]' if param.required else ''}"


def _build_panel(title: str, rows: Sequence[tuple[str, ...]]) -> "RenderableType":
    from rich.box import ROUNDED
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(max_width=_NAMES_WIDTH if len(rows[0]) > 1 else None)
    for name, *texts in rows:
        grid.add_row(Text(name, style="bold cyan"), *map(Text, texts))
    return Panel(grid, title=title, title_align="left", box=ROUNDED, border_style="dim")


_NAME = "foretell"
_VARIABLE = "_FORETELL_COMPLETE"
_ZSH_LINE = "fpath+=~/.zfunc; autoload -Uz compinit; compinit"


def show_completion(ctx: click.Context, _param: click.Parameter, asked: Any) -> None:
    """Print the completion script for the user's shell, and exit."""
    if asked and not ctx.resilient_parsing:
        click.echo(_build_script(ctx, _find_shell()))
        ctx.exit()


def install_completion(ctx: click.Context, _param: click.Parameter, asked: Any) -> None:
    """Install the completion script where the user's shell finds it, and exit."""
    if asked and not ctx.resilient_parsing:
        shell = _find_shell()
        path = _install(shell, _build_script(ctx, shell))
        click.echo(f"Completion for {shell} was written to {path}. It works in new shells.")
        ctx.exit()


def _find_shell() -> str:
    from click.shell_completion import get_completion_class

    name = Path(os.environ.get("SHELL", "")).name
    if not name or get_completion_class(name) is None:
        raise NotFoundError("shell", name, known=("bash", "fish", "zsh"), hint="SHELL names the shell.")
    return name


def _build_script(ctx: click.Context, shell: str) -> str:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(ctx.find_root().command, {}, _NAME, _VARIABLE).source()


def _install(shell: str, script: str) -> Path:
    home = Path.home()
    places = {
        "bash": home / ".bash_completions" / f"{_NAME}.sh",
        "zsh": home / ".zfunc" / f"_{_NAME}",
        "fish": home / ".config" / "fish" / "completions" / f"{_NAME}.fish",
    }
    path = places[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{script}\n", "utf-8")
    if shell == "bash":
        _add_line(home / ".bashrc", f"source '{path}'")
    elif shell == "zsh":
        _add_line(home / ".zshrc", _ZSH_LINE)
    return path


def _add_line(path: Path, line: str) -> None:
    text = path.read_text("utf-8") if path.is_file() else ""
    if line not in text:
        path.write_text(f"{text.rstrip()}\n{line}\n".lstrip("\n"), "utf-8")
