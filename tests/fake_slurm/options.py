"""Command lines as Slurm's programs take them."""

from collections.abc import Mapping

from tests.fake_slurm.state import RefusalError


def parse_options(
    words: list[str], *, program: str, names: str, flags: str, short: str
) -> tuple[dict[str, str], list[str]]:
    """Options by their long names, and the words after them.

    Args:
        words: What was given.
        program: Who complains of an unknown option.
        names: Options that have a value.
        flags: Those that have none.
        short: One-letter names as ``A=account``.
    """
    valued, bare = set(names.split()), set(flags.split())
    letters = dict(pair.split("=") for pair in short.split())
    found: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        else:
            name, equals, value = _spell_out(word, letters, bare, rest)
        if name in bare:
            found[name] = ""
        elif name in valued and (equals or rest):
            found[name] = value if equals else rest.pop(0)
        else:
            raise RefusalError(
                f"{program}: unrecognized option '{word}'\nTry \"{program} --help\" for more information"
            )
    return found, rest


def _spell_out(word: str, letters: Mapping[str, str], bare: set[str], rest: list[str]) -> tuple[str, str, str]:
    """The long form of ``-A x``, ``-Ax``; of ``-nXP`` the first, and the others are given back."""
    name, value = letters.get(word[1], word), word[2:]
    if name in bare and value:
        rest.insert(0, f"-{value}")
    return name, value and "=", value


def split_words(line: str) -> list[str]:
    """Words of a line, with quotes of both kinds."""
    words: list[str] = []
    word, quote, is_open = "", "", False
    for letter in line:
        if letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote, is_open = letter, True
        elif not quote and letter.isspace():
            if word or is_open:
                words.append(word)
            word, is_open = "", False
        else:
            word += letter
    return [*words, word] if word or is_open else words


def parse_minutes(text: str) -> int:
    """Minutes in ``5``, ``5:30``, ``1:00:00``, ``2-12`` or ``2-12:00:00``; seconds count as one more."""
    days, dash, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if dash:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return int(days or 0) * 1440 + hours * 60 + minutes + (seconds > 0)


def parse_megabytes(text: str) -> int:
    """Megabytes in ``100``, ``100M``, ``2G``."""
    scale = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
    unit = text[-1].upper()
    return round(float(text[:-1]) * scale[unit]) if unit in scale else int(text)
