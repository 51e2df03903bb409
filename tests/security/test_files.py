"""Site files, history files, app files and formulas of others."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Outcome

from foretell.advice.sites import SITE_OPTIONS, parse_sites
from foretell.cli._options import build_submission
from foretell.core.app import OWN_OPTIONS, Submission
from foretell.core.errors import RunnerError, SiteError
from foretell.core.formula import Formula
from foretell.core.run import Allocation, Launch
from foretell.schedulers.slurm.job_array import build_batch, render_array_script, render_job_script

# Options of sbatch that set what a job runs, as which user, where its files are, and what happens to it.
_OF_THE_USER = (
    "array", "bb", "bbf", "bcast", "begin", "bell", "chdir", "container", "container-id", "container-image",
    "container-mounts", "container-workdir", "container-writable", "deadline", "dependency", "error", "export",
    "export-file", "get-user-env", "gid", "hold", "ignore-pbs", "input", "job-name", "kill-on-invalid-dep", "mail-type",
    "mail-user", "no-container-entrypoint", "no-kill", "nodefile", "open-mode", "output", "parsable", "profile",
    "propagate", "quiet", "reboot", "signal", "stepmgr", "test-only", "time-min", "uid", "verbose", "wait", "wrap",
)  # fmt: skip
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
        'outpu = "/home/victim/.bashrc"',
        'export-f = "/tmp/evil"',
        'chd = "/tmp/evil"',
        'wra = "evil"',
        'container-image = "evil"',
        'mail-user = "mallory"',
        'an-option-of-a-plugin = "evil"',
        'account = "a\\nevil"',
        '"account\\n#" = "x"',
        'account = "\\u001b[2J"',
    ],
)
def test_a_site_cannot_set_what_a_job_does(option: str) -> None:
    with pytest.raises(SiteError):
        parse_sites(_SITE.format(option=option, partition="p"), source="site file")


def test_an_option_that_a_site_may_not_set_is_named_with_what_to_do() -> None:
    with pytest.raises(SiteError) as caught:
        parse_sites(_SITE.format(option='account = "a", outpu = "x"', partition="p"), source="site file")
    (mistake,) = caught.value.mistakes
    assert (mistake.place, mistake.found) == ("site x, script", "the option 'outpu'")
    assert all(word in mistake.expected for word in ("account", "qos", "--option", "app file"))


@pytest.mark.parametrize("name", SITE_OPTIONS)
def test_options_of_sites_are_not_abbreviations(name: str) -> None:
    """No version of sbatch takes one of them for an option that a site may not set."""
    (site,) = parse_sites(_SITE.format(option=f'{name} = "1"', partition="p"), source="site file")
    assert site.script == {name: "1"}
    assert not [option for option in _OF_THE_USER if option.startswith(name)]


def test_a_site_may_set_a_flag() -> None:
    (site,) = parse_sites(_SITE.format(option='contiguous = ""', partition="p"), source="site file")
    assert site.script == {"contiguous": ""}


@pytest.mark.parametrize("name", ["export", "no-requeue", "job-name", "expor"])
def test_a_site_cannot_drop_an_option_of_the_user(name: str) -> None:
    text = _SITE.format(option="", partition="p").replace("currency =", f'refuses = ["{name}"]\ncurrency =')
    with pytest.raises(SiteError, match=f"the option '{name}'"):
        parse_sites(text, source="site file")


class TestAbbreviations:
    """For sbatch, ``--outpu`` is ``--output``: what is refused by its name is refused by its beginning, too."""

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("outpu", "output"),
            ("e", "error"),
            ("job", "job-name"),
            ("arr", "array"),
            ("wra", "wrap"),
            ("tim", "time"),
            ("parti", "partition"),
            ("test", "test-only"),
            ("gpus-per-n", "gpus-per-node"),
        ],
    )
    def test_abbreviations_of_refused_options_are_refused(
        self, tmp_path: Path, foretell: Callable[..., Outcome], name: str, meant: str
    ) -> None:
        (tmp_path / "foretell.yaml").write_text("name: demo\ncommand: ['true']\nrunner: slurm\n")
        said = foretell("generate", "--option", f"{name}=x", folder=tmp_path)
        message = f"{name!r}, which sbatch may read as {meant!r}; expected {OWN_OPTIONS[meant]}"
        assert (said.code, message in said.err) == (1, True), said.err
        (tmp_path / "foretell.yaml").write_text(f"name: demo\ncommand: ['true']\nslurm: {{options: {{{name}: x}}}}\n")
        written = foretell("check", folder=tmp_path)
        assert (written.code, message in written.err) == (1, True), written.err

    def test_a_cluster_has_one_name(self, tmp_path: Path, foretell: Callable[..., Outcome]) -> None:
        (tmp_path / "foretell.yaml").write_text("name: demo\ncommand: ['true']\nrunner: slurm\n")
        said = foretell("generate", "--option", "cluster=x", folder=tmp_path)
        assert "expected the full name 'clusters'" in said.err

    @pytest.mark.parametrize("name", ["outpu", "arra", "job-nam"])
    def test_abbreviations_of_reserved_options_are_refused_in_python(self, tmp_path: Path, name: str) -> None:
        batch = build_batch("demo", directory=tmp_path, submission=Submission(options={name: "x"}), run_ids=("a",))
        with pytest.raises(RunnerError, match=f"option '{name}', which sbatch may read as"):
            render_array_script(batch, allocation=Allocation())

    def test_users_can_set_other_options(self) -> None:
        free = [name for name in (*_OF_THE_USER, *SITE_OPTIONS) if name not in OWN_OPTIONS]
        assert build_submission(
            partition=None, account=None, options=[f"{name}=1" for name in free if name != "account"]
        )


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
