"""What a file's own order gives without any model: blind pre-tests as a table."""

from collections.abc import Sequence

from jaxcontam.results import Pretest

OWN_ORDER_HEADER = (
    "copying",
    "neighbours attract",
    "2 to 7 places apart",
    "forwards less backwards",
)
_COLUMNS = ("blind_attraction", "blind_lags", "blind_direction")
_ALIKE, _POINTS = ("blind_attraction", "blind_lags"), "blind_direction"


def own_order_rows(pretests: Sequence[Pretest]) -> list[list[str]]:
    """A row for each kind of copying scorer; empty where none was asked.

    Args:
        pretests: Of one file.
    """
    found = {test.name: test for test in pretests}
    names = [name.partition(":") for name in found]
    kinds = dict.fromkeys(kind for column, _, kind in names if column in _COLUMNS)
    return [
        [kind, *(_cell(found.get(f"{column}:{kind}")) for column in _COLUMNS)]
        for kind in kinds
    ]


def own_order_sentence(pretests: Sequence[Pretest]) -> str | None:
    """What the table says; None where no blind scorer was asked."""
    blind = [test for test in pretests if test.name.partition(":")[0] in _COLUMNS]
    if not blind:
        return None
    failed = {test.name.partition(":")[0] for test in blind if not test.passed}
    scorer = "A scorer that knows nothing but this file and copies what it saw"
    if not any(test.applicable for test in blind):
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


def _cell(test: Pretest | None) -> str:
    if test is None:
        return "-"
    if not test.applicable:
        return "not applicable"
    verdict = "" if test.passed else ", failed"
    return f"{test.statistic:+.2g} nats (p = {test.p_value:.2g}{verdict})"
