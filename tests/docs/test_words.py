"""Output, pages and source use the words of the field; ``words.toml`` lists the ones to replace."""

import pytest
from tests.docs.words import WordList, find_words, read_word_list


@pytest.fixture(scope="module")
def words() -> WordList:
    return read_word_list()


@pytest.mark.parametrize(
    "text",
    [
        "it is carried over",
        "it is carried\n    # over to another",
        'text = "it is carried "\n    "over"',
        "value = carried_over(1)",
        "class CarriedOver:",
        "Doubts",
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
