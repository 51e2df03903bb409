"""``python -m benchmarks house`` on a small package of which all is known, and on ours."""

import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from benchmarks.goals import Goal
from benchmarks.house import command
from benchmarks.house.duplicates import find_duplicate_runs
from benchmarks.house.flows import find_entry, measure_flows, unite
from benchmarks.house.names import find_cycles, find_entries, find_equal_names
from benchmarks.house.sources import Source, read_sources

ROOT = Path(__file__).parents[2]
SHARED = "total = 0\nfor item in items:\n    total += item\nif total > 9:\n    total = 9\nprint(total)\n"
HOUSE = {
    "__init__.py": '"""A package."""\n',
    "cli/__init__.py": "",
    "cli/main.py": """\
        import sys

        def main():
            if sys.argv[1] == "count":
                import tinyhouse.shop.tables
            else:
                import tinyhouse.shop.prices
        """,
    "shop/__init__.py": "",
    "shop/tables.py": "import tinyhouse.core.units\n",
    "shop/prices.py": "items = [1]\n" + SHARED,
    "core/__init__.py": "",
    "core/units.py": "import math  # another line\nitems = [2]\n" + SHARED,
    "core/tables.py": "value = 1\n",
}

Make = Callable[[str, Mapping[str, str]], Path]


@pytest.fixture
def make_package(tmp_path: Path) -> Make:
    def make(name: str, files: Mapping[str, str]) -> Path:
        package = tmp_path / "src" / name
        for path, text in files.items():
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            (package / path).write_text(textwrap.dedent(text))
        scripts = f'[project.scripts]\n{name} = "{name}.cli.main:main"\n'
        (tmp_path / "pyproject.toml").write_text(scripts)
        return package

    return make


def test_lines_of_code_leave_out_docstrings_comments_and_blank_lines() -> None:
    text = (
        '"""What it is."""\n\n# Why.\nvalue = (\n    1,\n)\n\n\ndef ask():\n    """What you get."""\n    return value\n'
    )
    source = Source(Path("a.py"), text)
    assert (source.logical_lines, len(source.code_lines), source.physical_lines) == (3, 5, 11)
    assert [(one.name, one.code_lines) for one in source.functions()] == [("ask", 2)]


def test_methods_and_inner_functions_are_found() -> None:
    text = "class Box:\n    async def open(self):\n        def inner(): ...\n        return inner\n"
    functions = list(Source(Path("a.py"), text).functions())
    assert [(one.name, one.place, one.code_lines) for one in functions] == [
        ("Box.open", "a.py:2", 3),
        ("Box.open.inner", "a.py:3", 1),
    ]


def test_house_of_a_small_package(make_package: Make, tmp_path: Path) -> None:
    make_package("tinyhouse", HOUSE)
    record = command.measure_house(tmp_path, "tinyhouse")
    assert record["files"] == 9
    assert record["equal_names"] == {"tables": ["tinyhouse/core/tables.py", "tinyhouse/shop/tables.py"]}
    assert record["duplicate_runs"] == [
        {"first": "tinyhouse/core/units.py:3", "second": "tinyhouse/shop/prices.py:2", "lines": 6}
    ]
    assert (record["cycles"], record["long_files"], record["exhaustive_contracts"]) == ([], [], False)
    assert record["largest_files"][0]["path"] == "tinyhouse/core/units.py"


@pytest.mark.parametrize("inside_a_function", [False, True])
def test_cycles(make_package: Make, inside_a_function: bool) -> None:
    asks = "import tinycycle.upper.b\n"
    files = {
        "__init__.py": "",
        "lower/__init__.py": "",
        "upper/__init__.py": "",
        "lower/a.py": f"def ask():\n    {asks}" if inside_a_function else asks,
        "upper/b.py": "import tinycycle.lower.a\n",
    }
    cycles = find_cycles(make_package("tinycycle", files))
    assert cycles == [["tinycycle.lower.a", "tinycycle.upper.b"], ["tinycycle.lower", "tinycycle.upper"]]


def test_packages_may_form_a_cycle_where_no_modules_do(make_package: Make) -> None:
    files = {
        "__init__.py": "",
        "one/__init__.py": "",
        "two/__init__.py": "",
        "one/a.py": "import tinysiblings.two.b\n",
        "two/b.py": "",
        "two/c.py": "import tinysiblings.one.d\n",
        "one/d.py": "",
    }
    assert find_cycles(make_package("tinysiblings", files)) == [["tinysiblings.one", "tinysiblings.two"]]


def test_long_duplicates_count_once_and_lines_in_a_row_are_no_copies_of_themselves() -> None:
    copied = "".join(f"value_{number} = {number}\n" for number in range(9))
    sources = [Source(Path("a.py"), copied), Source(Path("b.py"), f"import math\n{copied}\nlast = 1\n")]
    (run,) = find_duplicate_runs(sources)
    assert (run.first, run.second, run.lines) == ("a.py:1", "b.py:2", 9)
    assert find_duplicate_runs([Source(Path("a.py"), "print()\n" * 8)]) == []


def test_flows_list_what_their_commands_load(make_package: Make, tmp_path: Path) -> None:
    package = make_package("tinyhouse", HOUSE)
    flows = {"ask": {"count": ("count",), "price": ("price",)}}
    loaded = measure_flows(package, entry=find_entry(tmp_path, "tinyhouse"), flows=flows, files={})["ask"]
    assert loaded["count"].packages(package) == ["cli", "core", "shop"]
    assert loaded["price"].packages(package) == ["cli", "shop"]
    assert unite(loaded.values()).modules >= {"tinyhouse.shop.tables", "tinyhouse.shop.prices"}


def test_imports_that_lead_into_a_package_are_listed(make_package: Make) -> None:
    loaded = {"tinyhouse.cli.main", "tinyhouse.shop.tables", "tinyhouse.core.units"}
    package = make_package("tinyhouse", HOUSE)
    assert find_entries(package, "core", loaded) == [("tinyhouse.shop.tables", "tinyhouse.core.units")]
    assert find_entries(package, "shop", loaded) == [("tinyhouse.cli.main", "tinyhouse.shop.tables")]


def test_a_flow_that_fails_says_so(make_package: Make) -> None:
    package = make_package("tinyhouse", HOUSE)
    with pytest.raises(SystemExit, match=r"tinyhouse count failed:(?s:.*)no_such_module"):
        measure_flows(package, entry="tinyhouse.no_such_module:main", flows={"ask": {"count": ("count",)}}, files={})


def test_what_misses_its_goal_is_marked(make_package: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_package("tinyhouse", HOUSE)
    record = command.measure_house(tmp_path, "tinyhouse")
    commands = {"build": {"modules": 3, "packages": ["core"]}, "predict": {"modules": 5, "packages": list("abcdefg")}}
    record["flows"] = {"build → predict": {"modules": 8, "packages": list("abcdefgh"), "commands": commands}}
    command.print_house(record, command.list_goals(record))
    lines = capsys.readouterr().out.splitlines()
    missed = [line.split("│")[1].strip() for line in lines if "misses" in line]
    assert missed == ["equal names", "packages without an exhaustive contract", "packages: build → predict"]
    assert any("NEWLINE tokens" in line for line in lines)
    assert max(map(len, lines)) <= 120


def test_goals_are_met_up_to_their_limit() -> None:
    assert Goal(name="files", value=230, most=230).met
    assert not Goal(name="files", value=231, most=230).met


def test_our_package_has_no_cycles() -> None:
    assert find_cycles(ROOT / "src" / "foretell") == []


def test_our_files_have_names_of_their_own() -> None:
    assert not find_equal_names(read_sources(ROOT / "src" / "foretell"))


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.__main__ import main

    monkeypatch.setattr(sys, "argv", ["benchmarks", "house", "--no-flows"])
    main()
    assert "house: package foretell" in capsys.readouterr().out
