"""Python files of a package, their lines of code and their functions, read from the text alone."""

import ast
import io
import tokenize
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, *_FUNCTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function or method and how long it is, without docstring, comments and blank lines."""

    place: str
    name: str
    code_lines: int


@dataclass(frozen=True)
class Source:
    """A Python file; ``path`` is relative to the package's parent folder."""

    path: Path
    text: str

    @property
    def package(self) -> str:
        return ".".join(self.path.parent.parts)

    @cached_property
    def physical_lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def logical_lines(self) -> int:
        """Ends of statements (NEWLINE tokens), docstrings not counted."""
        ends = sum(token.type == tokenize.NEWLINE for token in self._tokens)
        return ends - len(self._docstrings)

    @cached_property
    def code_lines(self) -> Set[int]:
        """Numbers of the lines that hold code: not blank, no comment alone, no docstring."""
        numbers: set[int] = set()
        for token in self._tokens:
            if token.type not in _NO_CODE:
                numbers.update(range(token.start[0], token.end[0] + 1))
        for docstring in self._docstrings:
            numbers.difference_update(_lines_of(docstring))
        return numbers

    @cached_property
    def import_lines(self) -> Set[int]:
        imports = [node for node in ast.walk(self._tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        return {number for node in imports for number in _lines_of(node)}

    def functions(self) -> Iterator[Function]:
        for name, node in _walk_functions(self._tree, ""):
            own = self.code_lines & set(_lines_of(node))
            yield Function(place=f"{self.path}:{node.lineno}", name=name, code_lines=len(own))

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def _tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    @cached_property
    def _docstrings(self) -> list[ast.stmt]:
        nodes = [node for node in ast.walk(self._tree) if isinstance(node, _WITH_DOCSTRING)]
        return [node.body[0] for node in nodes if ast.get_docstring(node, clean=False) is not None]


def read_sources(package: Path) -> list[Source]:
    """Every Python file below a package's folder, in order."""
    files = sorted(package.rglob("*.py"))
    return [Source(file.relative_to(package.parent), file.read_text(encoding="utf-8")) for file in files]


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _walk_functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            name = f"{prefix}{child.name}"
            if isinstance(child, _FUNCTIONS):
                yield name, child
            yield from _walk_functions(child, f"{name}.")
        else:
            yield from _walk_functions(child, prefix)
