"""Tables 1 and 2 of the paper, as text, from the results of several partitions."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from jaxcontam.replication.control import JudgeResult
from jaxcontam.replication.overlap import OverlapResult

_MEASURES = {"rouge_l": "ROUGE-L", "bleurt": "BLEURT"}
_JUDGES = {
    "judge_local": "local judge",
    "judge_llm": "model judge",
    "judge_human": "people",
}
_HUMAN = "judge_human"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """What was found for one partition.

    Attributes:
        dataset: Such as `xsum`.
        split: Such as `test`.
        overlaps: Rows of one test, by measure: `rouge_l`, `bleurt`.
        judges: Rows by method: `judge_local`, `judge_llm`, `judge_human`.
    """

    dataset: str
    split: str
    overlaps: Mapping[str, OverlapResult]
    judges: Mapping[str, JudgeResult]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """How often a method decides as people do.

    Attributes:
        method: In words, such as `algorithm 1: ROUGE-L`.
        n_right: Partitions on which both agree.
        n: Partitions with both decisions.
    """

    method: str
    n_right: int
    n: int


def successes(partitions: Sequence[Partition]) -> list[Success]:
    """Table 1: partitions on which each method decides as people do.

    People decide by algorithm 2 as well. Partitions without both decisions do not
    count. A method that always says no is the last row, to compare with.
    """
    found = []
    for number, names, maps in (
        (1, _MEASURES, [one.overlaps for one in partitions]),
        (2, _JUDGES, [one.judges for one in partitions]),
    ):
        for name in _named(names, maps):
            pairs = [
                (_says_yes(row), human)
                for one, rows in zip(partitions, maps, strict=True)
                if (row := rows.get(name)) is not None
                and (human := _human(one)) is not None
            ]
            if name != _HUMAN:
                title = f"algorithm {number}: {names.get(name, name)}"
                found.append(_success(title, pairs))
    humans = [human for one in partitions if (human := _human(one)) is not None]
    found.append(_success("always no", [(False, human) for human in humans]))
    return found


def table_1(partitions: Sequence[Partition]) -> str:
    """`successes` as text: method, partitions that are right, share."""
    lines = [f"{'Method':<28} {'Success':>8} {'Accuracy':>9}"]
    for row in successes(partitions):
        share = f"{row.n_right / row.n:.2%}" if row.n else "-"
        count = f"{row.n_right}/{row.n}"
        lines.append(f"{row.method:<28} {count:>8} {share:>9}")
    return "\n".join(lines) + "\n"


def table_2(partitions: Sequence[Partition]) -> str:
    """Mean overlap of both instructions and decisions of judges, a column a dataset.

    An asterisk marks a guided mean whose test has p <= 0.05. `x` is no evidence, `+` at
    least one exact copy, `++` at least two near-exact ones, `-` nothing known.
    """
    datasets = list(dict.fromkeys(one.dataset for one in partitions))
    splits = list(dict.fromkeys(one.split for one in partitions))
    # The same split may be called test in one dataset and validation in another.
    groups = _groups(splits)
    lines = [_line("Metric", "Instruction", datasets)]
    for measure in _named(_MEASURES, (one.overlaps for one in partitions)):
        for name, members in groups.items():
            rows = _by_dataset(partitions, datasets, members)
            title = f"{_MEASURES.get(measure, measure)} on {name}"
            overlaps = [one.overlaps.get(measure) if one else None for one in rows]
            lines.append(_line(title, "general", [_mean(x, False) for x in overlaps]))
            lines.append(_line("", "guided", [_mean(x, True) for x in overlaps]))
    for judge in _named(_JUDGES, (one.judges for one in partitions)):
        for name, members in groups.items():
            rows = _by_dataset(partitions, datasets, members)
            marks = [_mark(one.judges.get(judge) if one else None) for one in rows]
            lines.append(_line(f"{_JUDGES.get(judge, judge)} on {name}", "", marks))
    return "\n".join(lines) + "\n"


def _named(names: Mapping[str, str], maps: Iterable[Mapping[str, object]]) -> list[str]:
    """Keys that occur, known ones first in their order."""
    found = list(dict.fromkeys(key for one in maps for key in one))
    return [n for n in names if n in found] + [n for n in found if n not in names]


def _says_yes(row: OverlapResult | JudgeResult) -> bool:
    # By the paper's rules, which know no control and one level, 0.05.
    return (
        row.meets_rule if isinstance(row, JudgeResult) else row.verdict == "suspected"
    )


def _human(one: Partition) -> bool | None:
    row = one.judges.get(_HUMAN)
    return None if row is None else row.meets_rule


def _success(method: str, pairs: Sequence[tuple[bool, bool]]) -> Success:
    return Success(method=method, n_right=sum(a == b for a, b in pairs), n=len(pairs))


def _groups(splits: Sequence[str]) -> dict[str, list[str]]:
    """Training splits, and the others in one row, as in the paper."""
    train = [one for one in splits if one.startswith("train")]
    others = [one for one in splits if one not in train]
    named = {"train": train, "/".join(others): others}
    return {name: members for name, members in named.items() if members}


def _by_dataset(
    partitions: Sequence[Partition], datasets: Sequence[str], splits: Sequence[str]
) -> list[Partition | None]:
    found = {one.dataset: one for one in partitions if one.split in splits}
    return [found.get(dataset) for dataset in datasets]


def _mean(row: OverlapResult | None, is_guided: bool) -> str:
    mean = None if row is None else row.guided if is_guided else row.general
    if row is None or mean is None:
        return "-"
    return f"{'*' if is_guided and _says_yes(row) else ''}{mean:.2f}"


def _mark(row: JudgeResult | None) -> str:
    if row is None or row.verdict is None:
        return "-"
    if not _says_yes(row):
        return "x"
    return "+" if row.n_exact else "++"


def _line(title: str, instruction: str, cells: Sequence[str]) -> str:
    return f"{title:<26} {instruction:<12}" + "".join(f"{c:>9}" for c in cells)
