"""Tables 1 and 2 of the paper, from completions that came with it.

They are in the authors' repository, github.com/shahriargolchin/time-travel-in-llms
(Apache-2.0), below `results/`: a folder a model, gpt3.5 and gpt4, of 14 partitions.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.study import Grid, grouped
from jaxcontam.errors import InputError
from jaxcontam.replication.control import JudgeResult, judge_result
from jaxcontam.replication.instances import instances_fingerprint
from jaxcontam.replication.judges import Judged, consensus, judge_local, judge_version
from jaxcontam.replication.overlap import (
    ROUGE_L,
    OverlapResult,
    overlap_results,
    overlap_scores,
)
from jaxcontam.replication.recorded import Recorded, read_recorded

# The test that puts the asterisks of table 2 there.
_TEST = "paired_bootstrap"
_MEASURES = {"rouge_l": "ROUGE-L", "bleurt": "BLEURT"}
_HUMAN = "judge_human"
_WORDS = "judge_words"
_JUDGES = {
    "judge_local": "local judge",
    _WORDS: "local judge by words alone",
    "judge_llm": "model judge",
    _HUMAN: "people",
}


# Did-ChatGPT-Cheat? (Sainz et al. 2023) asks for first instances of a partition. Its
# answers are not among the files: what table 2 of the paper says of each partition, of
# both splits alike; x nothing found, ? suspicious, which is neither yes nor no.
_CHEAT_SETS = ("imdb", "ag_news", "yelp", "rte", "wnli", "samsum", "xsum")
_CHEAT = {
    "gpt4": dict.fromkeys(_CHEAT_SETS, "?"),
    "gpt3.5": dict.fromkeys(_CHEAT_SETS, "x") | {"wnli": "?"},
}
_CHEAT_NAME = "Did-ChatGPT-Cheat?, by the paper's table 2"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Results for one partition, such as `test` of `xsum`, of a model ("" if unnamed).

    `overlaps` are by measure: `rouge_l`, `bleurt`; judges by method: `judge_local` ...
    """

    model: str = ""
    dataset: str
    split: str
    overlaps: Mapping[str, OverlapResult]
    judges: Mapping[str, JudgeResult]

    @property
    def human(self) -> bool | None:
        """True if people find copies, by the paper's rule; None without labels."""
        row = self.judges.get(_HUMAN)
        return None if row is None else row.meets_rule

    @property
    def cheat(self) -> str | None:
        """What the paper says that Did-ChatGPT-Cheat? found; None if nothing."""
        return _CHEAT.get(self.model, {}).get(self.dataset)


def recorded_partitions(
    recorded: Sequence[Recorded], *, seed: int, folder: str = ""
) -> list[Partition]:
    """Results for partitions, by the paper's test and all judges.

    ROUGE-L is measured again; BLEURT is taken as it was recorded. The seed is the
    bootstrap's. Partitions that name no model are of the one that their folder names.
    """
    return [_partition(one, seed, folder) for one in recorded]


def read_recorded_folder(folder: Path) -> list[Recorded]:
    """Every partition below a folder, named by its place."""
    paths = sorted(folder.rglob("*.csv")) if folder.is_dir() else []
    if not paths:
        raise InputError(
            f"{folder}: no .csv file below it",
            hint="expected MODEL/SET/SPLIT/FILE.csv or SET/SPLIT/FILE.csv, one file a "
            "partition",
        )
    places = {path: path.relative_to(folder).parts for path in paths}
    return [
        dataclasses.replace(
            read_recorded(path),
            name="/".join(parts[:-1]) if len(parts) > 2 else path.stem,
        )
        for path, parts in places.items()
    ]


def _partition(recorded: Recorded, seed: int, folder: str) -> Partition:
    *model, dataset, split = _parts(recorded.name)
    fingerprint = instances_fingerprint(recorded.instances)
    about: dict[str, Any] = {"benchmark": recorded.name, "fingerprint": fingerprint}
    about["prompt_version"] = None
    scores = dict(recorded.scores)
    if recorded.general is not None:
        guided_N, general_N = (
            overlap_scores(ROUGE_L, recorded.instances, one)
            for one in (recorded.guided, recorded.general)
        )
        scores[ROUGE_L.name] = guided_N, general_N
    overlaps = {
        name: row
        for name, pair in scores.items()
        for row in overlap_results(name, *pair, seed=seed, **about)
        if row.method == f"{name}_{_TEST}"
    }
    bleurt_N, _ = recorded.scores.get("bleurt", (None, None))
    local = judge_local(recorded.instances, recorded.guided, bleurt=bleurt_N)
    judged = {"judge_local": (local, judge_version(with_bleurt=bleurt_N is not None))}
    if bleurt_N is not None:
        words = judge_local(recorded.instances, recorded.guided)
        judged[_WORDS] = words, judge_version()
    if recorded.model_judge is not None:
        judged["judge_llm"] = recorded.model_judge, "as recorded"
    if recorded.people:
        judged[_HUMAN] = Judged(labels=consensus(recorded.people)), "as recorded"
    judges = {
        method: judge_result(labels, method=method, judge_version=version, **about)
        for method, (labels, version) in judged.items()
    }
    return Partition(
        model="/".join(model) or folder,
        dataset=dataset,
        split=split,
        overlaps=overlaps,
        judges=judges,
    )


def _parts(name: str) -> list[str]:
    """Model, if it is named, dataset and split of a partition."""
    parts = name.split("/")
    return parts if len(parts) > 1 else [*parts, "all"]


def successes(partitions: Sequence[Partition]) -> dict[str, tuple[int, int]]:
    """Table 1: method -> partitions decided as people do, of those with both decisions.

    People decide by algorithm 2 as well. A method that always says no is the last row,
    to compare with. Of Did-ChatGPT-Cheat? `suspicious` is no decision, and so no
    success.
    """
    decided: dict[str, list[tuple[bool | None, bool | None]]] = {}
    for number, names, maps in (
        (1, _MEASURES, [one.overlaps for one in partitions]),
        (2, _JUDGES, [one.judges for one in partitions]),
    ):
        for name in _named(names, maps):
            if name != _HUMAN:
                decided[f"algorithm {number}: {names.get(name, name)}"] = [
                    (_says_yes(rows[name]), one.human)
                    for one, rows in zip(partitions, maps, strict=True)
                    if name in rows
                ]
    if cheat := [one for one in partitions if one.cheat is not None]:
        said = {"x": False}
        decided[_CHEAT_NAME] = [(said.get(str(one.cheat)), one.human) for one in cheat]
    decided["always no"] = [(False, one.human) for one in partitions]
    known = {m: [p for p in pairs if p[1] is not None] for m, pairs in decided.items()}
    return {m: (sum(a == b for a, b in p), len(p)) for m, p in known.items()}


def grids(partitions: Sequence[Partition]) -> list[Grid]:
    """Tables 1 and 2 of the paper for each model.

    In the second the same split may be called test in one dataset and validation in
    another: all that is no training split is one line, as in the paper.
    """
    by_model = grouped(partitions, lambda one: one.model)
    return [one for name, own in by_model.items() for one in _grids(name, own)]


def _grids(model: str, partitions: Sequence[Partition]) -> list[Grid]:
    of = f", {model}" if model else ""
    others = (one.split for one in partitions if not one.split.startswith("train"))
    rest = "/".join(dict.fromkeys(others))
    overlaps: dict[tuple[str, str], str] = {}
    judges: dict[tuple[str, str], str] = {}
    for one in sorted(partitions, key=lambda one: not one.split.startswith("train")):
        where = "train" if one.split.startswith("train") else rest
        for name, row in one.overlaps.items():
            line = f"{_MEASURES.get(name, name)} on {where}"
            mark = "*" if _says_yes(row) else ""
            overlaps[f"{line}, general", one.dataset] = _mean(row.general)
            overlaps[f"{line}, guided", one.dataset] = mark + _mean(row.guided)
        for name, row in one.judges.items():
            line = f"{_JUDGES.get(name, name)} on {where}"
            judges[line, one.dataset] = _mark(row)
        if one.cheat is not None:
            judges[f"{_CHEAT_NAME}, on {where}", one.dataset] = one.cheat
    return [
        Grid.of(
            f"Table 1{of}: partitions that a method decides as people do",
            successes(partitions).items(),
            {
                "method": "{r[0]}",
                "success": "{r[1][0]}/{r[1][1]}",
                "accuracy": lambda r: f"{r[1][0] / r[1][1]:.2%}" if r[1][1] else "-",
            },
        ),
        Grid.crossed(
            f"Table 2{of}: mean overlap by instruction, * where the guided one is "
            "higher with p <= 0.05; judges: x no evidence, + an exact copy, ++ two "
            "near-exact ones, - nothing known, ? suspicious",
            "metric",
            overlaps | judges,
        ),
    ]


def _named(names: Mapping[str, str], maps: Iterable[Mapping[str, object]]) -> list[str]:
    """Keys that occur, known ones first in their order."""
    found = dict.fromkeys(key for one in maps for key in one)
    return [n for n in names if n in found] + [n for n in found if n not in names]


def _says_yes(row: OverlapResult | JudgeResult) -> bool:
    # By the paper's rules, which know no control and one level, 0.05.
    return (
        row.meets_rule if isinstance(row, JudgeResult) else row.verdict == "suspected"
    )


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mark(row: JudgeResult) -> str:
    if row.verdict is None:
        return "-"
    if not row.meets_rule:
        return "x"
    return "+" if row.n_exact else "++"
