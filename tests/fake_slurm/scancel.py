"""The fake ``scancel``."""

from tests.fake_slurm.control import cancel, check_controller
from tests.fake_slurm.options import parse_options
from tests.fake_slurm.state import USER, Change, State, Task

NAMES = "name user account partition state jobname"
FLAGS = "me quiet verbose"
SHORT = "n=name u=user A=account p=partition t=state Q=quiet v=verbose"


def main(words: list[str]) -> None:
    options, rest = parse_options(words, program="scancel", names=NAMES, flags=FLAGS, short=SHORT)
    ids = [word for text in rest for word in text.split(",")]
    check_controller(f"scancel: error: Kill job error on job id {' '.join(ids)}:")
    with Change() as state:
        cancel(state, _choose(state, options, ids))


def _choose(state: State, options: dict[str, str], ids: list[str]) -> list[Task]:
    asked = {task.id for word in ids for task in state.find(word)}
    name = options.get("name", options.get("jobname"))
    return [
        task
        for task in state.tasks
        if (not ids or task.id in asked)
        and (name is None or state.batches[task.batch].name == name)
        and ("user" not in options or options["user"] == USER)
        and ("account" not in options or state.batches[task.batch].account == options["account"].lower())
        and ("partition" not in options or state.batches[task.batch].partition == options["partition"])
        and ("state" not in options or task.state == options["state"].upper())
    ]
