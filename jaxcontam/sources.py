"""Digests of the source code that a result depends on."""

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path


def imported_modules(
    roots: Iterable[str], within: tuple[str, ...]
) -> dict[str, ast.Module]:
    """Syntax trees of `roots` and of all that they import, directly or not, by name.

    Imports are read, not executed, those inside functions too. Modules outside the
    packages `within` are neither listed nor followed.

    Raises:
        ModuleNotFoundError: If a root does not exist, such as after a move.
    """
    found: dict[str, ast.Module] = {}
    waiting = list(roots)
    for name in waiting:
        if _file_of(name) is None:
            raise ModuleNotFoundError(f"no module named {name!r}", name=name)
    while waiting:
        name = waiting.pop()
        inside = any(f"{name}.".startswith(f"{package}.") for package in within)
        if name in found or not inside:
            continue
        if (path := _file_of(name)) is not None:
            found[name] = ast.parse(path.read_bytes())
            waiting.extend(_imports(found[name]))
    return dict(sorted(found.items()))


def code_digest(roots: Iterable[str], within: tuple[str, ...]) -> str:
    """Hexadecimal SHA-256 of the statements of all that `roots` import.

    Comments, docstrings and layout are left out, so that editing them changes nothing.
    """
    digest = hashlib.sha256()
    for name, tree in imported_modules(roots, within).items():
        digest.update(f"{name}\0{statements(tree)}\0".encode())
    return digest.hexdigest()


def statements(tree: ast.Module) -> str:
    """A syntax tree in words; takes docstrings and other lone strings out of it."""
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [one for one in body if not _is_lone_string(one)]
    return ast.dump(tree)


def _file_of(name: str) -> Path | None:
    """The source file of a module, which is not imported; None for any other name."""
    package, *parts = name.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent.joinpath(*parts)
    files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def _imports(tree: ast.Module) -> Iterator[str]:
    """Names after `import`, and both readings of `from a import b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_lone_string(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)
