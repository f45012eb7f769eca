"""Methods of other packages: rows that join `METHODS` behind those that are here.

A package names them as entry points of the group `jaxcontam.methods`.
"""

import importlib.metadata
from collections.abc import Collection

from jaxcontam.methods.membership.score import ScoreMethod
from jaxcontam.methods.method import TestMethod

GROUP = "jaxcontam.methods"


def own_methods(taken: Collection[str]) -> dict[str, TestMethod | ScoreMethod]:
    """Rows by name, in the order of the names of their entry points.

    Raises:
        ValueError: If an entry point is no test and no score, or has a name that is
            taken; names the package.
    """
    rows: dict[str, TestMethod | ScoreMethod] = {}
    points = importlib.metadata.entry_points(group=GROUP)
    for point in sorted(points, key=lambda one: one.name):
        row = point.load()
        package = point.dist.name if point.dist else point.value
        if not isinstance(row, TestMethod | ScoreMethod):
            raise ValueError(
                f"{package}: {GROUP}: {point.value} must be a test or a score, "
                f"got {row!r}"
            )
        if row.name in taken or row.name in rows:
            raise ValueError(f"{package}: {GROUP}: the name {row.name!r} is taken")
        rows[row.name] = row
    return rows
