"""The contract for people with history: runs from a table in, predictions for a table of configurations out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.slow

ROWS = 16
IMPORT = ["runs", "import", "past.csv", "--app", "hist", "--elapsed", "walltime_s"]


def build_history() -> pd.DataFrame:
    """Columns of all kinds; the time follows ``n`` and ``kind``, the memory follows ``n``."""
    random = np.random.default_rng(7)
    number = np.tile([10, 20, 40, 80], ROWS // 4) * np.repeat([1, 10], ROWS // 2)
    kind = np.where(np.arange(ROWS) % 3 == 0, 'dé"p, th', "broad")
    noise = random.uniform(0.98, 1.02, ROWS)
    return pd.DataFrame(
        {
            "job id": [f"job-{row}" for row in range(ROWS)],
            "n": number,
            "kind": kind,
            "shuffle": random.integers(0, 2, ROWS).astype(bool),
            "depth": [None if row % 7 == 0 else 1 + row % 2 for row in range(ROWS)],
            "rate": random.choice([1e-3, 0.1], ROWS),
            "constant": 7,
            "größe (MB); 'x'": random.integers(1, 9, ROWS),
            "cores": np.where(np.arange(ROWS) % 2, 1, 2),
            "name": random.choice(["x", "y"], ROWS),
            "state": random.choice(["ok", "odd"], ROWS),
            "id": np.arange(ROWS),
            "walltime_s": (1 + number * np.where(kind == "broad", 0.1, 0.2)) * noise,
            "peak (bytes)": 10**6 * (50 + number),
            "run_type": np.repeat(["SD", "FS"], ROWS // 2),
        }
    )


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, foretell: Callable[..., Any]) -> Path:
    folder = tmp_path_factory.mktemp("history")
    build_history().to_csv(folder / "past.csv", index=False)
    options = ["--memory", "peak (bytes)", "--scale", "run_type", "--drop", "job id"]
    imported = foretell(*IMPORT, *options, "--json", folder=folder)
    assert imported.code == 0, imported.err
    assert imported.record["added"] == ROWS
    assert set(imported.record["parameters"]).isdisjoint({"job id", "walltime_s", "peak (bytes)", "run_type", "cores"})
    built = foretell("build", "hist", "--json", folder=folder)
    assert built.code == 0, built.err
    return folder


@pytest.fixture(scope="module")
def predict(history: Path, foretell: Callable[..., Any]) -> Callable[[pd.DataFrame], list[Any]]:
    def _predict(frame: pd.DataFrame) -> list[Any]:
        frame.to_csv(history / "configs.csv", index=False)
        rows = foretell("predict", "hist", "--from", "configs.csv", "--json", folder=history).record
        assert len(rows) == len(frame)
        return rows

    return _predict


def test_an_object_a_row(predict: Callable[[pd.DataFrame], list[Any]]) -> None:
    frame = build_history().drop(columns=["walltime_s", "peak (bytes)", "run_type", "job id"])
    for row, number in zip(predict(frame), frame["n"], strict=True):
        assert row["parameters"]["n"] == number
        for quantity in ("elapsed_s", "peak_memory_bytes"):
            estimate = row[quantity]
            assert 0 < estimate["low"] <= estimate["value"] <= estimate["high"]
            assert estimate["level"] == pytest.approx(0.9)
        assert row["request"]["walltime_s"] >= row["elapsed_s"]["value"]
        assert isinstance(row["request"]["memory_bytes"], int)


def test_what_was_measured_is_found_again(predict: Callable[[pd.DataFrame], list[Any]]) -> None:
    frame = build_history()
    predicted = [row["elapsed_s"]["value"] for row in predict(frame)]
    errors = np.abs(np.array(predicted) / frame["walltime_s"] - 1)
    assert np.median(errors) < 0.1


def test_columns_in_another_order_and_additional_ones(predict: Callable[[pd.DataFrame], list[Any]]) -> None:
    frame = build_history()
    expected = predict(frame)
    shuffled = frame[sorted(frame.columns, reverse=True)].assign(comment="new", **{"": 1})
    assert predict(shuffled) == expected


def test_cores_count(predict: Callable[[pd.DataFrame], list[Any]]) -> None:
    frame = build_history().head(1)
    few, many = (predict(frame.assign(cores=cores))[0]["allocation"]["cores"] for cores in (1, 2))
    assert (few, many) == (1, 2)


@pytest.mark.parametrize("column", ["n", "kind", "shuffle", "depth", "rate", "constant", "größe (MB); 'x'", "name"])
def test_an_empty_cell_is_not_known(predict: Callable[[pd.DataFrame], list[Any]], column: str) -> None:
    frame = build_history().head(2).astype({column: object})
    frame.loc[0, column] = None
    empty, full = predict(frame)
    assert column not in empty["parameters"]
    assert column in full["parameters"]
    assert empty["elapsed_s"]["value"] > 0


def test_a_word_never_seen_has_a_warning(predict: Callable[[pd.DataFrame], list[Any]]) -> None:
    frame = build_history().head(2)
    frame.loc[0, "kind"] = "brand new"
    new, known = predict(frame)
    assert any("kind" in warning["text"] for warning in new["warnings"])
    assert not any("kind" in warning["text"] for warning in known["warnings"])


def test_no_row_no_prediction(
    predict: Callable[[pd.DataFrame], list[Any]], history: Path, foretell: Callable[..., Any]
) -> None:
    assert predict(build_history().head(0)) == []
    assert foretell("predict", "hist", "--from", "configs.csv", folder=history).code == 0


def test_a_column_of_one_value_may_be_missing(predict: Callable[[pd.DataFrame], list[Any]]) -> None:
    assert predict(build_history().drop(columns="constant"))[0]["parameters"]["constant"] == 7


def test_mistakes_are_named_all_at_once(history: Path, foretell: Callable[..., Any]) -> None:
    frame = build_history().drop(columns="n").astype({"shuffle": object})
    frame.loc[2, "shuffle"] = "perhaps"
    frame.to_csv(history / "wrong.csv", index=False)
    outcome = foretell("predict", "hist", "--from", "wrong.csv", folder=history)
    assert outcome.code == 1
    assert "column n: found no such column" in outcome.err
    assert "'perhaps' in row 3" in outcome.err


def test_without_memory_and_scale(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    frame = build_history()[["n", "kind", "walltime_s"]]
    frame.to_csv(tmp_path / "past.csv", index=False)
    assert foretell(*IMPORT, folder=tmp_path).code == 0
    assert foretell("build", "hist", folder=tmp_path).code == 0
    frame[["kind", "n"]].to_csv(tmp_path / "configs.csv", index=False)
    rows = foretell("predict", "hist", "--from", "configs.csv", "--json", folder=tmp_path).record
    assert [row["peak_memory_bytes"] for row in rows] == [None] * ROWS
    assert {row["request"]["memory_bytes"] for row in rows} == {None}
    assert all(row["request"]["walltime_s"] > 0 for row in rows)


def test_units_and_states(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    frame = pd.DataFrame({"n": [1, 2, 3], "minutes": [1, 2, 3], "mb": [10, 20, 30], "how": ["completed", "oom", "?"]})
    frame.to_csv(tmp_path / "past.tsv", index=False, sep="\t")
    words = ["--elapsed", "minutes", "--elapsed-unit", "1m", "--memory", "mb", "--memory-unit", "1MB", "--state", "how"]
    imported = foretell("runs", "import", "past.tsv", "--app", "units", *words, "--json", folder=tmp_path)
    assert imported.record["added"] == 2
    assert list(imported.record["skipped"].values()) == [[3]]
    runs = foretell("runs", "list", "units", "--json", folder=tmp_path).record["runs"]
    by_state = {run["state"]: (run["elapsed_s"], run["peak_memory_bytes"]) for run in runs}
    assert by_state == {"completed": (60, 10 * 2**20), "out_of_memory": (120, 20 * 2**20)}


def test_parquet(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    build_history().to_parquet(tmp_path / "past.parquet")
    words = ["runs", "import", "past.parquet", "--app", "hist", "--elapsed", "walltime_s", "--json"]
    assert foretell(*words, folder=tmp_path).record["added"] == ROWS


def test_json_lists_all_runs_and_a_table_the_newest(tmp_path: Path, foretell: Callable[..., Any]) -> None:
    rows = 30
    (tmp_path / "past.csv").write_text("n,walltime_s\n" + "".join(f"{n},{n}\n" for n in range(1, rows + 1)))
    assert foretell(*IMPORT, "--store", "s.db", folder=tmp_path).code == 0
    words = ["runs", "list", "hist", "--store", "s.db"]
    every = foretell(*words, "--json", folder=tmp_path).record
    assert (every["total"], len(every["runs"])) == (rows, rows)
    assert len(foretell(*words, "--json", "--limit", "7", folder=tmp_path).record["runs"]) == 7
    assert f"20 of {rows} runs" in foretell(*words, folder=tmp_path).out
