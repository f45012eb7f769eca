"""Text that every machine has.

Documents are the documentation inside the Python installation and its source code
without docstrings and comments. Docstrings that questions are made from stand in
neither.
"""

import ast
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from eval.python_docs import (
    DOCUMENT_CHARACTERS,
    SKIPPED,
    PythonDocs,
    joined,
    normalised,
    parsed,
    read_python_docs,
)
from jaxcontam.errors import InputError


def read_pool() -> PythonDocs:
    """Documentation and code of this Python installation; the same each time.

    Raises:
        InputError: If the installation has no source files.
    """
    docs = read_python_docs()
    root = Path(sysconfig.get_paths()["stdlib"])
    code = [
        document
        for path in sorted(root.rglob("*.py"))
        if SKIPPED.isdisjoint(path.relative_to(root).parts)
        for document in joined(list(_statements(path)))
    ]
    everything = normalised(" ".join(code))
    return PythonDocs(
        (*docs.documents, *code),
        tuple(q for q in docs.questions if q.sentence not in everything),
    )


def drawn(items: Sequence, n: int, *, seed: int) -> list:
    """`n` of the items at random, without repeats.

    Raises:
        InputError: If there are not so many.
    """
    if len(items) < n:
        raise InputError(
            f"the corpus gives {len(items):,} questions, {n:,} needed",
            hint="a larger --corpus",
        )
    order = np.random.default_rng([seed, 41]).permutation(len(items))[:n]
    return [items[i] for i in order.tolist()]


def _statements(path: Path) -> Iterator[str]:
    """Top-level statements of a module, without docstrings and comments."""
    _, tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:] or [ast.Pass()]
    for node in tree.body:
        text = ast.unparse(node)
        for begin in range(0, len(text), DOCUMENT_CHARACTERS):
            yield text[begin : begin + DOCUMENT_CHARACTERS]
