"""Methods of your own: a file each, with a `METHOD`; there is no list to edit.

Every file of this folder is read, and its row joins `METHODS` behind all others.
"""

import importlib
import pkgutil
from collections.abc import Collection

from jaxcontam.methods.membership.score import ScoreMethod
from jaxcontam.methods.method import TestMethod


def own_methods(taken: Collection[str]) -> dict[str, TestMethod | ScoreMethod]:
    """Name -> row of each file of this folder, in the order of the files' names.

    Args:
        taken: Names of other methods.

    Raises:
        ValueError: If a file has no `METHOD` that is a test or a score, or one of a
            name that is taken; names the file.
    """
    rows: dict[str, TestMethod | ScoreMethod] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda one: one.name):
        row = getattr(
            importlib.import_module(f"{__name__}.{module.name}"), "METHOD", None
        )
        path = f"jaxcontam/methods/own/{module.name}.py"
        if not isinstance(row, TestMethod | ScoreMethod):
            raise ValueError(f"{path}: METHOD must be a test or a score, got {row!r}")
        if row.name in taken or row.name in rows:
            raise ValueError(f"{path}: the name {row.name!r} is taken")
        rows[row.name] = row
    return rows
