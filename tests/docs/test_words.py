"""Output, pages and source use the words of the field; ``words.toml`` lists the ones to replace."""

from collections.abc import Iterator
from typing import Any

import click
import pytest
from tests.docs.words import DEFAULT_PATHS, ROOT, WordList, check_file, find_words, list_files, read_word_list

from foretell.cli.main import app

_PATHS = [ROOT / name for name in DEFAULT_PATHS]
_FILES = list(list_files(path for path in _PATHS if path.exists()))


def _list_help(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """Each command and the texts of its help."""
    texts = [command.help, command.epilog, *(getattr(each, "help", None) for each in command.params)]
    options = [option for each in command.params for option in each.opts]
    yield name, "\n".join([*filter(None, texts), *options])
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            yield from _list_help(command.get_command(context, inner), f"{name} {inner}")


_HELP = dict(_list_help(app, "foretell"))


@pytest.fixture(scope="module")
def words() -> WordList:
    return read_word_list()


def test_files(words: WordList) -> None:
    findings = [finding for path in _FILES for finding in check_file(path, words)]
    new = [str(finding) for finding in findings if not finding.path.startswith(words.pending)]
    assert not new, "\n".join(["words to replace:", *new])


@pytest.mark.parametrize("name", _HELP)
def test_help(words: WordList, name: str) -> None:
    findings = find_words(_HELP[name], path=name, rules=words.words, exemptions=words.exemptions)
    assert not findings, "\n".join(map(str, findings))


def test_every_exemption_is_needed(words: WordList) -> None:
    texts = [path.read_text("utf-8") for path in _FILES]
    unused = [one.pattern.pattern for one in words.exemptions if not any(map(one.pattern.search, texts))]
    assert unused == []


@pytest.mark.parametrize(
    "text",
    [
        "it is carried over",
        "it is carried\n    # over to another",
        'text = "it is carried "\n    "over"',
        "value = carried_over(1)",
        "class CarriedOver:",
        "Doubts",
        "TELLING_LOGS",
        "_doubts_of_it",
    ],
)
def test_words_are_found_in_sentences_and_names(words: WordList, text: str) -> None:
    assert len(find_words(text, path="file.py", rules=words.words)) == 1


@pytest.mark.parametrize("text", ["foretell recommends", "FORETELL_STORE", "undoubtedly", "carried out", "besides"])
def test_parts_of_other_words_are_not(words: WordList, text: str) -> None:
    assert find_words(text, path="file.py", rules=words.words) == []


def test_an_exemption_covers_its_phrase_only(words: WordList) -> None:
    found = find_words("file.tell(); tell", path="file.py", rules=words.words, exemptions=words.exemptions)
    assert [finding.word for finding in found] == ["tell"]
