"""Assigns jobs to applications by their texts or by rules."""

from pathlib import Path
from typing import Any

import pytest

from foretell.core.errors import NotFoundError, SpecError
from foretell.core.past_jobs import JobKind
from foretell.history.grouping import Rules, find_options, find_script, load_rules, name_app, parse_rules


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("train_lr0.1_run17", "train_lr0.3_run2"),
        ("relax-2025-01-31", "relax-2024-12-01"),
        ("try-38983b077d824c76", "try-aa983b077d82ff76"),
        ("größe_3", "größe_4"),
        ("step1e-5", "step2e-6"),
    ],
)
def test_numbers_and_ids_do_not_make_another_application(one: str, other: str) -> None:
    names = {name_app(JobKind(user="ada", name=name)) for name in (one, other)}
    assert len(names) == 1
    assert names.pop().startswith("ada.")


def test_names_users_and_scripts_make_another_application() -> None:
    kinds = [JobKind(user=user, name=name) for user in ("ada", "bob") for name in ("train", "test_train")]
    assert len({name_app(kind) for kind in kinds}) == 4


@pytest.mark.parametrize(
    ("kind", "app"),
    [
        (
            JobKind(user="ada", name="wrap", command="sbatch --wrap sleep 3", work_directory="/u/ada/lbm/run3"),
            "ada.lbm",
        ),
        (JobKind(user="ada", name="job", command="sbatch -N 2 -t 10 sim_4.sh --x 3"), "ada.sim"),
        (JobKind(name="run.sh", command="/opt/bin/sbatch run.sh", work_directory="/u/ada/lbm"), "lbm"),
        (JobKind(user="ada"), "ada.unnamed"),
        (JobKind(user="a b/c", name="x y/z"), "a-b-c.z"),
    ],
)
def test_script_or_folder_replace_a_generic_name(kind: Any, app: str) -> None:
    assert name_app(kind) == app


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("sbatch --parsable --array=0-2 -c 4 --time 10 train.sh --epochs 3", "train.sh"),
        ("sbatch --exclusive train.sh x", "train.sh"),
        ("sbatch --wrap sleep 3", ""),
        ("", ""),
        ("sbatch", ""),
        ("srun -n2 ./solve -k 3", "./solve"),
    ],
)
def test_the_script_of_a_command(command: str, script: str) -> None:
    assert find_script(command) == script


def test_options_after_the_script_become_typed_parameters() -> None:
    command = "sbatch -c 4 --mem=4G train.py --epochs 30 --lr=1e-3 --deep --name=a b -k -3 --on true"
    expected = {"epochs": 30, "lr": 1e-3, "deep": True, "name": "a", "k": -3, "on": True}
    assert find_options(command) == expected
    assert isinstance(find_options(command)["epochs"], int)


RULES = r"""
[[rules]]
app = "resnet"
match = { name = '^train_(?P<epochs>\d+)', user = "^ada$" }

[[rules]]
app = "other"
match = { command = "train" }
"""


def test_the_first_matching_rule_applies_and_named_groups_are_parameters() -> None:
    rules = parse_rules(RULES, source="x")
    kind = JobKind(name="train_30", user="ada", command="sbatch train.sh --lr 0.1")
    assert (rules.assign(kind).app, rules.assign(kind).parameters) == ("resnet", {"epochs": 30, "lr": 0.1})
    assert rules.assign(JobKind(name="train_30", user="bob", command="sbatch train.sh")).app == "other"
    unfit = JobKind(name="x", user="bob")
    assert rules.assign(unfit) == Rules().assign(unfit)


def test_all_mistakes_of_a_file_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('colour = 1\n[[rules]]\nmatch = { name = "(", who = "x" }\n[[rules]]\napp = "a b"\nextra = 2\n')
    with pytest.raises(SpecError) as caught:
        load_rules(path)
    printed = str(caught.value)
    for word in ("7 mistakes", "colour", "'('", "who", "'a b'", "extra", "rule 2, match", "rule 1, app"):
        assert word in printed


@pytest.mark.parametrize("text", ["", "rules = 3", "[[rules]", "rules = []"])
def test_an_invalid_rules_file_is_an_error_with_an_example(text: str) -> None:
    with pytest.raises(SpecError, match=r"\[\[rules\]\]"):
        parse_rules(text, source="x")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="rules file"):
        load_rules(tmp_path / "none.toml")
