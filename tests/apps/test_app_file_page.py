import re
from collections.abc import Callable
from pathlib import Path

import pytest

from foretell.apps.app_file import parse_app
from foretell.apps.sweep import build_sweep
from foretell.core.app import App
from foretell.core.errors import SpecError

_PAGE = Path(__file__).parents[2].joinpath("docs/app-file.md").read_text()
_COMPLETE = re.findall(r"```yaml\n# complete\n(.*?)```", _PAGE, re.DOTALL)


@pytest.mark.parametrize("text", _COMPLETE)
def test_each_complete_example_is_an_app(read: Callable[[str], App], text: str) -> None:
    assert build_sweep(read(text))


def test_the_page_shows_the_output_of_check(tmp_path: Path) -> None:
    wrong, said = re.findall(r"```yaml\n# mistakes\n(.*?)```.*?```text\n(.*?)```", _PAGE, re.DOTALL)[0]
    with pytest.raises(SpecError) as caught:
        parse_app(wrong, source="foretell.yaml", directory=tmp_path)
    assert str(caught.value) == said.rstrip("\n")


def test_every_key_has_a_section() -> None:
    with pytest.raises(SpecError) as caught:
        parse_app("nonsense: 1", source="foretell.yaml", directory=Path())
    (mistake,) = [mistake for mistake in caught.value.mistakes if "nonsense" in mistake.found]
    keys = mistake.expected.removeprefix("one of ").split(", ")
    assert len(keys) == 18
    assert all(re.search(rf"^## .*`{key}`", _PAGE, re.MULTILINE) for key in keys)
