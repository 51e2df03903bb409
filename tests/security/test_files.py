"""Site files, history files, app files and formulas of others."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Outcome

from foretell.entities.formula import Formula
from foretell.entities.run import Allocation, Launch
from foretell.errors import RunnerError, SiteError
from foretell.machines.sites import parse_sites
from foretell.runners.slurm.script import render_job_script

_SITE = """
[sites.x]
title = "X"
scheduler = "slurm"
currency = "USD"
as_of = 2026-01-01
source = "me"
script = {{ {option} }}
[sites.x.nodes.n]
partition = "{partition}"
cores = 4
memory = "8GB"
price_per_core_h = 0.1
"""


@pytest.mark.parametrize(
    "option",
    [
        'export = "ALL,LD_PRELOAD=/tmp/evil.so"',
        'output = "/home/victim/.bashrc"',
        'error = "/home/victim/.bashrc"',
        'chdir = "/tmp/evil"',
        'wrap = "evil"',
        'uid = "root"',
        'get-user-env = ""',
        'export-file = "/tmp/evil"',
        'account = "a\\nevil"',
        '"account\\n#" = "x"',
        'account = "\\u001b[2J"',
    ],
)
def test_a_site_cannot_say_what_a_job_does(option: str) -> None:
    with pytest.raises(SiteError):
        parse_sites(_SITE.format(option=option, partition="p"), source="site file")


@pytest.mark.parametrize("value", ["a\nevil", "a b", "$(evil)\r", "a;\x00"])
def test_an_option_is_one_word_of_its_line(value: str) -> None:
    with pytest.raises(RunnerError, match="sbatch"):
        render_job_script(Launch(argv=("true",)), job_name="x", allocation=Allocation(), options={"qos": value})
    with pytest.raises(RunnerError, match="sbatch"):
        render_job_script(Launch(argv=("true",)), job_name="x", allocation=Allocation(partition=value))


def test_shell_characters_in_an_option_stay_in_a_comment() -> None:
    """Bash reads a #SBATCH line as a comment, and sbatch takes the word as it is."""
    script = render_job_script(
        Launch(argv=("true",)), job_name="$(evil)", allocation=Allocation(partition="$(evil)`evil`;evil")
    )
    assert [line for line in script.splitlines() if "evil" in line and not line.startswith("#SBATCH --")] == []


@pytest.mark.parametrize("text", ["9**9**9**9", "n**n**n**n", "2**n**n**9", "-n**0.5", "1/0*n", "n" + "**n" * 60])
def test_a_formula_ends(text: str) -> None:
    formula = Formula.parse(text)
    assert isinstance(formula.evaluate({"n": 10**9}), float)
    with np.errstate(all="ignore"):
        formula.evaluate({"n": np.array([3, 10**9])})


@pytest.mark.parametrize(
    "text", ["__import__('os')", "n.__class__", "[n for n in n]", "n if n else n", "f'{n}'", "n[0]"]
)
def test_a_formula_is_arithmetic_only(text: str) -> None:
    """Also one that nobody checked when it was stored."""
    with pytest.raises(ValueError, match="formula"):
        Formula(text).evaluate({"n": 1.0})
    with pytest.raises(ValueError, match="formula"):
        assert Formula(text).names


def test_a_history_is_data(tmp_path: Path, foretell: Callable[..., Outcome]) -> None:
    """Names and commands of jobs are shown; nothing of them is run or opened."""
    canary = tmp_path / "canary"
    evil = f"$(touch {canary})"
    header = (
        "JobID|JobIDRaw|Cluster|User|Account|Partition|JobName|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|"
        "AllocCPUS|ReqMem|MaxRSS|TotalCPU|WorkDir|SubmitLine"
    )
    row = (
        f"{{n}}|{{n}}|c|mallory|a|p|{evil}|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:01|2026-01-01T00:01:00|59|10|"
        f"1|1|1G|10M|00:00:50|{evil}|sbatch --wrap='{evil}'"
    )
    lines = "\n".join([header, *(row.format(n=number) for number in range(1, 40))])
    (tmp_path / "history.txt").write_text(lines + "\n")
    imported = foretell("history", "import", "history.txt", folder=tmp_path)
    for words in ("history apps", "history report"):
        foretell(*words.split(), folder=tmp_path)
    assert "Traceback" not in imported.err
    assert not canary.exists()
