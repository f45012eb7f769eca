"""Digest of the code that a result follows from: modules, and all that these import.

What nobody imports, such as a page or a command, makes no result obsolete; nor does a
comment or a docstring. An import of our own counts by what the imported file says and
not by its name, so that a file which moves leaves the digest as it was.
"""

import ast
import functools
import hashlib
from collections.abc import Collection
from pathlib import Path

PACKAGES = ("jaxcontam", "train", "eval")
_ROOT = Path(__file__).resolve().parent.parent

_Imports = tuple[tuple[str, tuple[tuple[str, str | None], ...]], ...]


def source_digest(
    *modules: str,
    within: Collection[str] = PACKAGES,
    unread: Collection[str] = (),
    root: Path = _ROOT,
) -> str:
    """Digest of modules by their dotted names, with all that they import.

    Args:
        modules: Where a result is made.
        within: Packages whose modules count; others are not followed.
        unread: Modules that do not count themselves; what they import does.
        root: Folder of the packages.

    Raises:
        ModuleNotFoundError: If one of `modules` does not exist, such as after a move.
    """
    found = imported(*modules, within=within, root=root)
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


def imported(
    *modules: str, within: Collection[str] = PACKAGES, root: Path = _ROOT
) -> dict[str, tuple[str, _Imports]]:
    """Modules and all of ours that they import, also late, by name.

    Returns:
        For each the digest of its statements without imports of ours, and these
        imports: a module, and the names taken from it, each with what it is called
        there.

    Raises:
        ModuleNotFoundError: If one of `modules` does not exist.
    """
    for name in modules:
        if _file(name, root) is None:
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)
    found: dict[str, tuple[str, _Imports]] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        counts = any(f"{name}.".startswith(f"{package}.") for package in within)
        path = _file(name, root) if counts and name not in found else None
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
    rest = _Rest()
    said = ast.dump(rest.visit(ast.parse(text)))
    return hashlib.sha256(said.encode()).hexdigest(), tuple(rest.imports)


class _Rest(ast.NodeTransformer):
    """Takes lone strings, imports of ours and what is for type checkers out of a tree.

    Attributes:
        imports: Imports of ours that were taken out.
    """

    def __init__(self) -> None:
        self.imports: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Docstrings, also those of constants and fields."""
        value = node.value
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Imports for type checkers run never."""
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        """`import a.b`."""
        return self._taken(node, [(a.name, (("", a.asname),)) for a in node.names])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        """`from a import b`."""
        names = tuple((alias.name, alias.asname) for alias in node.names)
        return self._taken(node, [(node.module or "", names)])

    def _taken(
        self,
        node: ast.Import | ast.ImportFrom,
        found: list[tuple[str, tuple[tuple[str, str | None], ...]]],
    ) -> ast.AST | None:
        if found[0][0].split(".")[0] not in PACKAGES:
            return node
        self.imports += found
        return None
