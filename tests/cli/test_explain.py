"""``foretell explain`` on an app that takes milliseconds."""

from pathlib import Path

import pytest

from foretell.core.run import Run


def test_explain_without_settings_is_about_the_usual_run(run: Run) -> None:
    record = run("explain", "--json").record
    assert record.keys() == {
        "app", "parameters", "allocation", "usual", "elapsed_s", "peak_memory_bytes", "plot",
    }  # fmt: skip
    assert record["parameters"]["n"] == record["usual"]["n"]
    assert record["elapsed_s"]["contributions"] == []


def test_explain_names_what_time_grows_with(run: Run) -> None:
    time = run("explain", "--set", "n=26", "--level", "80%", "--json").record["elapsed_s"]
    assert [driver["name"] for driver in time["drivers"]] == ["n"]
    assert time["drivers"][0]["effect"] > 1.5
    assert time["estimate"]["level"] == pytest.approx(0.8)
    (predicted,) = run("predict", "--set", "n=26", "--level", "80%", "--json").record
    assert time["estimate"] == pytest.approx(predicted["elapsed_s"])


def test_explain_names_what_was_never_run(run: Run) -> None:
    outcome = run("explain", "--set", "n=5000", "--cores", "48")
    assert outcome.code == 0, outcome.err
    text = " ".join(outcome.out.split())
    assert "of the uncertainty is" in text
    assert "n = 5000, never run" in text
    assert "cores = 48, never run" in text
    assert max(map(len, outcome.out.splitlines())) <= 100
    assert len(outcome.out.splitlines()) <= 12


@pytest.mark.parametrize("name", ["drivers.png", "new/drivers.svg"])
def test_explain_draws(name: str, run: Run, workspace: Path) -> None:
    assert run("explain", "--plot", name, "--json").record["plot"] == name
    assert (workspace / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--set m=2", "one of n"),
        ("--set n=much", "an integer"),
        ("--level 2", "--level"),
        ("--plot drivers.pdf", ".png or .svg"),
    ],
)
def test_explain_says_what_is_wrong(words: str, said: str, run: Run) -> None:
    outcome = run("explain", *words.split())
    assert outcome.code == 1
    assert said in outcome.err
