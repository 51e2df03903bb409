"""``python -m lab measure``: options, progress, interruption and mistakes."""

from pathlib import Path

import pytest
from lab.__main__ import describe_progress, main
from lab.training_jobs import JobProgress
from tests.trained_models import PretendedGroup, pretend

from foretell.distributed.measured_jobs import read_rows

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (
            JobProgress(number=11, done=12, total=20, family="conv", iteration_s=0.0842),
            "12/20 conv 11: 84.2 ms an iteration, undisturbed",
        ),
        (
            JobProgress(number=3, done=4, total=20, family="rnn", iteration_s=0.01, disturbed=True),
            "4/20 rnn 3: 10.0 ms an iteration, disturbed by other processes",
        ),
        (JobProgress(number=3, done=4, total=20, failed="no\nluck"), r"4/20 number 3: failed (no\nluck)"),
    ],
)
def test_progress_is_one_line(progress: JobProgress, expected: str) -> None:
    assert describe_progress(progress) == expected


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "jobs.jsonl"


def measure(out: Path, *words: str) -> int:
    return main(["measure", "--out", str(out), "--device", "core", "--jobs", "3", *words])


def test_trainings_are_measured_and_resumed(monkeypatch: pytest.MonkeyPatch, out: Path, capsys: Captured) -> None:
    group = pretend(monkeypatch)
    assert measure(out, "--link", "200Mb") == 0
    printed = capsys.readouterr()
    assert "3 measured trainings, 0 of them disturbed" in printed.out
    assert f"foretell consumption learn --jobs {out}" in printed.out
    assert printed.err.count("an iteration, undisturbed") == 3
    assert measure(out, "--link", "200Mb", "--jobs", "5") == 0
    assert len(group.started) == 5
    rows = read_rows(out)
    assert {row.setting.link_bytes_per_s for row in rows} == {2.5e7}
    assert sorted(row.number for row in rows) == [0, 1, 2, 3, 4]


def test_a_strategy_with_servers_has_one_by_default(monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    pretend(monkeypatch)
    assert measure(out, "--strategy", "ps", "--asynchronous", "--minutes", "20") == 0
    (setting,) = {row.setting for row in read_rows(out)}
    assert (setting.strategy.value, setting.servers, setting.synchronous) == ("ps", 1, False)


def test_an_interruption_says_how_to_resume(monkeypatch: pytest.MonkeyPatch, out: Path, capsys: Captured) -> None:
    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    pretend(monkeypatch)
    monkeypatch.setattr("lab.measuring.sample", interrupt)
    assert measure(out) == 130
    assert "the same command resumes" in capsys.readouterr().err


def test_without_namespaces_a_link_is_refused(monkeypatch: pytest.MonkeyPatch, out: Path, capsys: Captured) -> None:
    pretend(monkeypatch, isolated=False)
    assert measure(out, "--link", "1Gb") == 1
    assert "cannot be limited to 1 Gb/s" in capsys.readouterr().err
    assert measure(out) == 0


def test_trainings_that_fail_are_reported(monkeypatch: pytest.MonkeyPatch, out: Path, capsys: Captured) -> None:
    pretend(monkeypatch, PretendedGroup(failing=frozenset({0, 1, 2})))
    assert measure(out) == 1
    assert "1/3 number 0: failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--device", "T4"], "T4, a GPU"),
        (["--device", "T9"], "'T9'"),
        (["--servers", "1"], "none for all-reduce"),
        (["--workers", "0"], "workers: found 0"),
    ],
)
def test_a_mistake_is_one_message(
    monkeypatch: pytest.MonkeyPatch, out: Path, capsys: Captured, words: list[str], expected: str
) -> None:
    pretend(monkeypatch)
    assert measure(out, *words) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert expected in error
    assert not out.exists()


@pytest.mark.parametrize(
    "words", [["--jobs", "0"], ["--minutes", "-1"], ["--link", "apples"], ["--strategy", "gossip"]]
)
def test_a_value_that_cannot_be_read_is_refused(out: Path, capsys: Captured, words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        measure(out, *words)
    assert caught.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_help_has_examples(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["measure", "--help"])
    assert "sudo python -m lab measure --out jobs.jsonl --minutes 20" in capsys.readouterr().out
