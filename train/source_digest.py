"""Digest of the code that a result follows from: modules, and all that these import.

What nobody imports, such as a page or a command, makes no result obsolete. An import of
our own counts by what the imported file says and not by its name, so that a file which
moves leaves the digest as it was.
"""

import ast
import functools
import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("jaxcontam", "train", "eval")

_Import = tuple[str, tuple[tuple[str, str | None], ...]]
"""A module of ours, and the names taken from it, each with what it is called here."""


def source_digest(
    *modules: str, unread: Collection[str] = (), root: Path = _ROOT
) -> str:
    """Digest of modules by their dotted names, with all that they import.

    Args:
        modules: Where a result is made.
        unread: Modules that do not count themselves; what they import does.
        root: Folder of the packages.
    """
    found = imported(*modules, root=root)
    said = []
    for name, path in found.items():
        if name in unread:
            continue
        rest, imports = _parts(path.read_text(encoding="utf-8"))
        meant = [
            (_parts(found[target].read_text(encoding="utf-8"))[0], names)
            for module, names in imports
            for target in (_prefixes(module, names) & found.keys())
        ]
        # Repeated and moved imports mean the same.
        said.append(repr((rest, sorted({repr(one) for one in meant}))))
    text = "\n".join(sorted(said))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def imported(*modules: str, root: Path = _ROOT) -> dict[str, Path]:
    """Files of modules and of all of ours that they import, also late, by name."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = _file(name, root)
        if path is None or name in found:
            continue
        found[name] = path
        waiting += _prefixes(name, ())
        for module, names in _parts(path.read_text(encoding="utf-8"))[1]:
            waiting += _prefixes(module, names)
    return found


def _prefixes(module: str, names: tuple[tuple[str, str | None], ...]) -> set[str]:
    """A module, its packages, and the names that may be modules below it."""
    parts = module.split(".")
    packages = {".".join(parts[: n + 1]) for n in range(len(parts))}
    return packages | {f"{module}.{name}" for name, _ in names}


def _file(name: str, root: Path) -> Path | None:
    base = root.joinpath(*name.split("."))
    files = base.with_suffix(".py"), base / "__init__.py"
    return next((path for path in files if path.is_file()), None)


@functools.lru_cache(maxsize=1024)
def _parts(text: str) -> tuple[str, tuple[_Import, ...]]:
    """Digest of a file without docstring and imports of ours, and these imports."""
    lines, imports, tree = text.splitlines(), [], ast.parse(text)
    unsaid: list[Any] = tree.body[:1] if ast.get_docstring(tree) else []
    for node in _executed(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = tuple((one.name, one.asname) for one in node.names)
            ours: list[_Import] = [(node.module, names)]
        elif isinstance(node, ast.Import):
            ours = [(one.name, (("", one.asname),)) for one in node.names]
        else:
            continue
        if ours[0][0].split(".")[0] in _PACKAGES:
            imports += ours
            unsaid.append(node)
    for node in unsaid:
        for number in range(node.lineno - 1, node.end_lineno):
            lines[number] = ""
    rest = hashlib.sha256("\n".join(line for line in lines if line).encode())
    return rest.hexdigest(), tuple(imports)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """A syntax tree's nodes, without what is there for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _executed(child)
