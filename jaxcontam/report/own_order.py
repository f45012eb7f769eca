"""What a file's own order gives without any model: blind pre-tests as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

OWN_ORDER_HEADER = (
    "copying",
    "neighbours attract",
    "2 to 7 places apart",
    "forwards less backwards",
)
_COLUMNS = ("blind_attraction", "blind_lags", "blind_direction")
_ALIKE, _POINTS = ("blind_attraction", "blind_lags"), "blind_direction"


def own_order_rows(pretests: Sequence[Row]) -> list[list[str]]:
    """A row for each kind of copying scorer; empty where none was asked.

    Args:
        pretests: Of one file.
    """
    found = {test["name"]: test for test in pretests}
    kinds = dict.fromkeys(
        kind
        for name in found
        for column, _, kind in [name.partition(":")]
        if column in _COLUMNS
    )
    return [
        [kind, *(_cell(found.get(f"{column}:{kind}")) for column in _COLUMNS)]
        for kind in kinds
    ]


def all_pretests(row: Row, results: Sequence[Row]) -> list[Row]:
    """The pre-tests of a file: a row states only those that bear on its null.

    Args:
        row: A primary row.
        results: All rows of its report.
    """
    found = {test["name"]: test for test in row["pretests"]}
    for other in results:
        if other.get("benchmark") == row["benchmark"]:
            for test in other.get("pretests", ()):
                found.setdefault(test["name"], test)
    return list(found.values())


def own_order_sentence(pretests: Sequence[Row]) -> str | None:
    """What the table says; None where no blind scorer was asked."""
    blind = [test for test in pretests if test["name"].partition(":")[0] in _COLUMNS]
    if not blind:
        return None
    failed = {t["name"].partition(":")[0] for t in blind if not t["passed"]}
    scorer = "A scorer that knows nothing but this file and copies what it saw"
    if not any(test.get("applicable", True) for test in blind):
        return f"{scorer} finds nothing here that an order could change."
    if _POINTS in failed:
        return (
            f"{scorer} finds that the file points forward by itself: no test of this "
            "file alone can tell that from memory."
        )
    if failed.intersection(_ALIKE):
        return (
            f"{scorer} prefers this order, both ways alike: it is no random one, so a "
            "test that needs a random order proves nothing. It does not point forward."
        )
    return f"{scorer} finds no more in this order than chance gives."


def _cell(test: Row | None) -> str:
    if test is None:
        return "-"
    if not test.get("applicable", True):
        return "not applicable"
    verdict = "" if test["passed"] else ", failed"
    return f"{test['statistic']:+.2g} nats (p = {test['p_value']:.2g}{verdict})"
