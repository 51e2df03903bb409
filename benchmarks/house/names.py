"""Files of one name in several packages, and modules that import each other in a circle."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from pathlib import Path

import grimp
import networkx

from benchmarks.house.sources import Source

LAYER_FILES = frozenset({"__init__", "__main__", "_base", "api", "model", "render", "plots"})


def find_equal_names(sources: Iterable[Source]) -> dict[str, list[str]]:
    """File names that occur in more than one package, with their places; the layer files may."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources:
        places[source.path.stem].append(str(source.path))
    return {name: found for name, found in sorted(places.items()) if len(found) > 1 and name not in LAYER_FILES}


def find_cycles(package: Path) -> list[list[str]]:
    """Groups of modules that import each other in a circle, and of first-level packages that do.

    Imports inside functions count; those for type checkers alone do not.
    """
    imports = _read_imports(package)
    siblings: defaultdict[str, set[str]] = defaultdict(set)
    for importer, imported in imports.items():
        if "." in importer:  # the root's own imports are its public names
            siblings[_first_level(importer)] |= {_first_level(name) for name in imported if "." in name}
    return [*_circles(imports), *_circles(siblings)]


def find_entries(package: Path, name: str, modules: Set[str]) -> list[tuple[str, str]]:
    """Imports by which modules, out of those loaded, lead from other packages into one right below ours."""
    inside = {module for module in modules if _first_level(module) == f"{package.name}.{name}"}
    imports = _read_imports(package)
    return sorted(
        (importer, imported)
        for importer in modules - inside
        for imported in imports.get(importer, frozenset()) & inside
    )


def _read_imports(package: Path) -> dict[str, Set[str]]:
    sys.path.insert(0, str(package.parent))
    try:
        graph = grimp.build_graph(package.name, exclude_type_checking_imports=True, cache_dir=None)
    finally:
        sys.path.remove(str(package.parent))
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def _first_level(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _circles(imports: Mapping[str, Set[str]]) -> list[list[str]]:
    graph = networkx.DiGraph((importer, name) for importer, names in imports.items() for name in names)
    return sorted(sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1)
