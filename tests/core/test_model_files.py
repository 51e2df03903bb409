"""Files of fitted models: what is read is what was written, and nothing else is accepted."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from foretell.core import model_files
from foretell.core.errors import StoreError
from foretell.core.model_files import ModelContent, from_bytes, load_model, save_model, to_bytes

REMEDY = "fit it again"


class Line:
    kind: ClassVar[str] = "line"

    def __init__(self, slope: float, points: NDArray[Any]) -> None:
        self.slope = slope
        self.points = points

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"slope": self.slope}, {"points": self.points}

    @classmethod
    def from_state(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        return cls(record["slope"], arrays["points"])


class Curve(Line):
    kind: ClassVar[str] = "curve"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "new" / "line.safetensors"  # in a folder that does not exist yet
    save_model(path, Line(0.1, np.arange(6.0).reshape(2, 3).T), {"rows": 6})
    return path


def test_a_loaded_model_is_the_one_that_was_saved(path: Path) -> None:
    model, facts = load_model(path, [Curve, Line], remedy=REMEDY)
    assert type(model) is Line
    assert model.slope == 0.1
    assert model.points.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert facts == {"rows": 6}


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "int16", "uint8", "bool"])
def test_arrays_keep_their_type(dtype: str) -> None:
    content = ModelContent(kind="line", record={}, arrays={"a": np.ones(3, dtype=dtype)})
    assert from_bytes(to_bytes(content), kinds=["line"], source="x", remedy="").arrays["a"].dtype == dtype


def test_a_file_says_which_versions_wrote_it(path: Path) -> None:
    versions = from_bytes(path.read_bytes(), kinds=["line"], source="x", remedy="").versions
    assert versions["numpy"] == np.__version__
    assert versions["foretell"]


def test_saving_replaces_the_file(path: Path) -> None:
    save_model(path, Line(2.0, np.ones(1)), {})
    assert load_model(path, [Line], remedy=REMEDY)[0].slope == 2.0


def test_a_model_of_another_kind_is_refused(path: Path) -> None:
    with pytest.raises(StoreError, match=r"a model of kind 'line', expected 'curve'.*fit it again"):
        load_model(path, [Curve], remedy=REMEDY)


def build_file(header: object) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def build_header(**changes: str) -> bytes:
    metadata = {"version": "1", "model": "line", "record": '{"slope": 1}', "facts": "{}"} | changes
    return build_file({"__metadata__": metadata})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no header"),
        (b"just some text", "no header"),
        (b"\xff" * 40, "no header"),
        (build_file([1, 2]), "not a model file of Foretell"),
        (build_file({}), "not a model file of Foretell"),
        (build_file({"__metadata__": 3}), "not a table"),
        (build_header(model="oracle"), "kind 'oracle'"),
        (build_header(record="no JSON"), "Expecting"),
        (build_header(record="[]"), "not a table"),
        (build_header(record="[" * 100_000), "recursion"),
        (build_header(facts="3"), "not a table"),
        (build_header(), "points"),
        (build_header() + b"more", "not a readable model"),
        (b"PK\x03\x04 and more", "written by an earlier version of Foretell, in another format"),
    ],
)
def test_other_files_are_refused_in_one_sentence(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "odd.safetensors"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"odd.safetensors: .*{reason}.*; fit it again") as caught:
        load_model(path, [Line], remedy=REMEDY)
    assert "\n" not in str(caught.value)


def test_a_newer_format_is_refused_with_the_version_that_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "new.safetensors"
    path.write_bytes(build_header(version="999", versions='{"foretell": "7.1"}'))
    expected = "a model in format '999', written by Foretell 7.1, and this version reads format 1; fit it again"
    with pytest.raises(StoreError, match=expected):
        load_model(path, [Line], remedy=REMEDY)


def test_a_file_without_versions_is_read() -> None:
    """Files of models of training steps had none in the version before."""
    blob = safetensors.numpy.save(
        {"points": np.ones(2)}, metadata={"version": "1", "model": "line", "record": "{}", "facts": "{}"}
    )
    assert from_bytes(blob, kinds=["line"], source="x", remedy="").versions == {}


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("MOST_BYTES", "bytes, more than 5"),
        ("MOST_HEADER_BYTES", "bytes in its header, more than 5"),
        ("MOST_VALUES", "values in its header, more than 5"),
    ],
)
def test_files_have_limits(path: Path, limit: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = path.read_bytes()
    monkeypatch.setattr(model_files, limit, 5)
    with pytest.raises(StoreError, match=message):
        from_bytes(blob, kinds=["line"], source="x", remedy=REMEDY)


def test_a_large_file_is_not_read_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "MOST_BYTES", 5)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read"))
    with pytest.raises(StoreError, match="larger than 5 bytes"):
        load_model(path, [Line], remedy=REMEDY)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere\.safetensors: cannot be read"):
        load_model(tmp_path / "nowhere.safetensors", [Line], remedy=REMEDY)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"below\.safetensors: cannot be written"):
        save_model(tmp_path / "file" / "below.safetensors", Line(1.0, np.ones(1)), {})
