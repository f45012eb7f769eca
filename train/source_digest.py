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

_Imports = tuple[tuple[str, tuple[tuple[str, str | None], ...]], ...]


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
    for name in found.keys() - set(unread):
        rest, imports = found[name]
        meant = {
            repr((found[target][0], names))
            for module, names in imports
            for target in (module, *(f"{module}.{name}" for name, _ in names))
            if target in found
        }
        said.append(repr((rest, sorted(meant))))
    text = "\n".join(sorted(said))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def imported(*modules: str, root: Path = _ROOT) -> dict[str, tuple[str, _Imports]]:
    """Modules and all of ours that they import, also late, by name.

    Returns:
        For each the digest of its file without docstring and imports of ours, and
        these imports: a module, and the names taken from it, each with what it is
        called there.
    """
    found: dict[str, tuple[str, _Imports]] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = None if name in found else _file(name, root)
        if path is not None:
            found[name] = _parts(path.read_text(encoding="utf-8"))
            waiting += _packages(name)
            for module, names in found[name][1]:
                waiting += [
                    *_packages(module),
                    *(f"{module}.{one}" for one, _ in names),
                ]
    return found


def _packages(module: str) -> list[str]:
    """A module and the packages that it is in."""
    parts = module.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


def _file(name: str, root: Path) -> Path | None:
    base = root.joinpath(*name.split("."))
    files = base.with_suffix(".py"), base / "__init__.py"
    return next((path for path in files if path.is_file()), None)


@functools.lru_cache(maxsize=1024)
def _parts(text: str) -> tuple[str, _Imports]:
    lines, imports, tree = text.splitlines(), [], ast.parse(text)
    unsaid: list[Any] = tree.body[:1] if ast.get_docstring(tree) else []
    for node in _executed(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = tuple((one.name, one.asname) for one in node.names)
            ours = [(node.module, names)]
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
