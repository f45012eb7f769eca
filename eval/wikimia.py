"""A new WikiMIA: texts from before a model's data against texts from after it.

Question: what do membership scores find on texts that a date divides, beside what the
texts alone say? WikiMIA (Shi et al. 2023, arXiv:2310.16789) takes Wikipedia's pages of
events: members are older than 2017, non-members of 2023 and later, cut to 32, 64, 128
and 256 words; its tables are AUC and TPR at 5 % FPR. A model of today needs new dates.
Command: `python -m eval.wikimia --texts FILE --cutoff 2025-01-01 --model MODEL`.
Hardware: one CPU core; without a model seconds. Headline: docs/log.

FILE is a .jsonl of {"text", "date"}, with {"source"} where texts come from several; or
a folder of changelogs (.md, .rst, .txt), whose sections have their versions' dates. A
source gives as many texts to either side, so that what it is about tells nothing. That
a text is old says no more than that it may be a member; that texts differ by their date
is what the blind baselines find, which never ask a model.
"""

import contextlib
import dataclasses
import datetime
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval import study
from eval.study import Grid, StudyFlags
from jaxcontam.errors import InputError
from jaxcontam.members.blind import blind_baselines
from jaxcontam.members.known_texts import count_words, cut_words
from jaxcontam.members.result import ScoreResult
from jaxcontam.members.run import membership
from jaxcontam.models.checkpoint import model_fingerprint
from jaxcontam.reports.report_files import data_digest, make_folder, replace_bytes
from jaxcontam.stats.roc import tpr_at_fpr

FPR = 0.05
METHODS = ("min_k", "min_k_pp", "loss", "zlib", "lowercase")
_SUFFIXES = (".md", ".rst", ".txt")
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_WRITTEN = re.compile(r"([A-Z][a-z]{2})[a-z]*\.? (\d{1,2}),? (\d{4})")
# A line of one sign repeated is below, and in some styles above, a title.
_RULE = re.compile(r"([=\-~^*+#])\1{2,}\s*")
# Numbers of versions and of tickets beside a change, which tell its year.
_FIELD = re.compile(r"\s*:\w+: ")
_VERSION = re.compile(r"\d\.\d")


@dataclasses.dataclass(frozen=True, slots=True)
class Dated:
    """A text, when it was written, and where it stands."""

    text: str
    date: datetime.date
    source: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WikiMIA(StudyFlags):
    """Make labelled texts of dated ones, and tables of what tells the labels."""

    texts: Path
    """.jsonl of {"text", "date"}, or a folder of changelogs."""
    cutoff: str = "2025-01-01"
    """Older texts are members, those of this day or later are not."""
    lengths: tuple[int, ...] = (32, 64, 128, 256)
    """Words of the texts, one file each; shorter texts are left out of it."""
    model: str | None = None
    """Model whose data end before --cutoff: directory or hub name (default: none)."""
    methods: tuple[str, ...] = METHODS
    """Scores of `jaxcontam membership`."""
    out: Path = Path("runs/wikimia")
    """Folder for the files, tables and numbers."""

    def __post_init__(self) -> None:
        StudyFlags.__post_init__(self)
        _read_date(self.cutoff, "--cutoff")
        if not self.lengths or min(self.lengths) < 1:
            raise InputError("--lengths must be numbers of words, each at least 1")

    def run(self) -> dict[str, Any]:
        """Make the files, ask the model if there is one, print; returns the numbers."""
        clock, made = study.Clock.start(), run(self)
        rows = [row for one in made["files"] for row in one["rows"]]
        grids = []
        for title, cell in (("AUC", _auc), ("TPR at 5 % FPR", "{tpr:.0%}".format_map)):
            cells = {(r["method"], f"{r['length']} words"): cell(r) for r in rows}
            grids.append(Grid.crossed(title, "method", cells))
        return study.finish_study(
            "wikimia", self, clock=clock, numbers=made, grids=grids
        )


def run(config: WikiMIA) -> dict[str, Any]:
    """Write a file for each length; returns its AUC and TPR of all that ranks texts."""
    cutoff = _read_date(config.cutoff, "--cutoff")
    texts, files = read_dated(config.texts), []
    records = study.Records(config.out / "records")
    # Not its name: another model may stand in the same folder tomorrow.
    asked = config.model and model_fingerprint(config.model)
    make_folder(config.out)
    for length in sorted(set(config.lengths))[: 1 if config.tiny else None]:
        drawn, labels = draw(texts, length, cutoff=cutoff, seed=config.seed)
        # A rate of 5 % needs that many non-members, classifiers half as many texts.
        if sum(labels) < 20:
            continue
        path = config.out / f"WikiMIA_length{length}.jsonl"
        rows = zip(drawn, labels, strict=True)
        lines = [json.dumps({"input": t, "label": int(y)}) + "\n" for t, y in rows]
        data = "".join(lines).encode()
        replace_bytes(path, data)
        given = data_digest(data), asked, config.methods, config.seed
        found = records.read(f"length{length}", *given)
        if found is None:
            found = {"rows": [*_blind(drawn, labels, config.seed)]}
            if config.model is not None:
                found["rows"] += _asked(config, path)
            records.write(f"length{length}", found, *given)
        own = [{"length": length, **row} for row in found["rows"]]
        files.append({"length": length, "n_a_side": sum(labels), "rows": own})
    if not files:
        raise InputError(
            f"{config.texts}: no length has 20 texts of each side of the date",
            hint="take more texts, shorter --lengths or another --cutoff",
        )
    return {"n_texts": len(texts), "files": files}


def read_dated(path: Path) -> list[Dated]:
    """Texts of a .jsonl file or of a folder of changelogs, in their order."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in _SUFFIXES)
        return [
            dataclasses.replace(one, source=str(file.relative_to(path)))
            for file in files
            for one in sections(_read(file))
        ]
    found = []
    for number, line in enumerate(_read(path).strip().split("\n"), 1):
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
            text, date = row["text"], str(row["date"])
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{place}: no record with text and date") from None
        when = _read_date(date[:10], f"{place}: date")
        found.append(Dated(str(text), when, str(row.get("source", ""))))
    return found


def sections(text: str) -> Iterator[Dated]:
    """Text below each title or field that holds a date, for each change there.

    A title without a date ends the section, unless it stands within it: deeper, and
    without a version of its own.
    """
    date, kept, depth, is_code = None, list[str](), 0, False
    depths: dict[str, int] = {}
    lines = text.splitlines()
    for line, below in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        is_code ^= line.startswith("```")
        mark = None if is_code else _title_mark(line, below)
        if mark is None and ".. change" not in line:
            if not (_RULE.fullmatch(line) or _FIELD.match(line)):
                kept.append(line)
            continue
        new = _date_in(line) if mark else None
        # Titles of the same depth have the same mark, and higher ones come first.
        own = depths.setdefault(mark, len(depths)) if mark else 0
        if mark and not new and own > depth and not _VERSION.search(line):
            continue
        if date and kept:
            yield Dated(" ".join(" ".join(kept).split()), date)
        kept = []
        if new:
            date, depth = new, own
        elif mark or "changelog::" in line:
            # A version that is not released yet has no date.
            date = None
    if date and kept:
        yield Dated(" ".join(" ".join(kept).split()), date)


def _title_mark(line: str, below: str) -> str | None:
    """Mark of a title: its own signs or those below it; None for other lines."""
    if ":released:" in line:
        return ":released:"
    if not line.strip() or _RULE.fullmatch(line):
        return None
    if line.startswith("#"):
        return "#" * (len(line) - len(line.lstrip("#")))
    rule = _RULE.fullmatch(below)
    return rule[1] if rule else None


def draw(
    texts: Sequence[Dated],
    length: int,
    *,
    cutoff: datetime.date,
    seed: int,
) -> tuple[list[str], list[bool]]:
    """Texts cut to their first words, and labels; from a source as many of each.

    Texts that begin alike are left out. Which ones are taken, and their order, follow
    from the seed and their own words.
    """
    long = (one for one in texts if count_words(one.text) >= length)
    cut = [dataclasses.replace(one, text=cut_words(one.text, length)) for one in long]
    alike = study.grouped(cut, lambda one: " ".join(one.text.casefold().split()))
    alone = [one for (one, *more) in alike.values() if not more]
    alone.sort(key=lambda one: hashlib.sha256(f"{seed} {one.text}".encode()).digest())
    chosen: list[tuple[str, bool]] = []
    for own in study.grouped(alone, lambda one: one.source).values():
        old = [one.text for one in own if one.date < cutoff]
        new = [one.text for one in own if one.date >= cutoff]
        for member, other in zip(old, new, strict=False):
            chosen += [(member, True), (other, False)]
    order = np.random.default_rng(seed).permutation(len(chosen))
    return [chosen[i][0] for i in order], [chosen[i][1] for i in order]


def _blind(texts: list[str], labels: list[bool], seed: int) -> Iterator[dict[str, Any]]:
    """AUC and TPR of classifiers that never ask a model, held out."""
    is_member = np.array(labels)
    blind = blind_baselines(texts, is_member, seed=seed)
    for row, score in zip(blind.rows, blind.scores.T, strict=True):
        tpr, _ = tpr_at_fpr(score[is_member], score[~is_member], FPR)
        yield {"method": f"blind: {row.name}", "auc": row.auc, "tpr": tpr}


def _asked(config: WikiMIA, path: Path) -> Iterator[dict[str, Any]]:
    """AUC and TPR of scores by the model, with the AUC's interval."""
    flags = {"scores": config.methods, "fpr": (FPR,), "store": config.out / "store"}
    for row in membership(config.model, path, seed=config.seed, **flags).results:
        assert isinstance(row, ScoreResult), "every text has a label"
        ends = {"auc_low": row.auc_low, "auc_high": row.auc_high}
        (point,) = row.operating_points
        yield {"method": row.method, "auc": row.auc, "tpr": point.tpr, **ends}


def _auc(row: dict[str, Any]) -> str:
    if "auc_low" not in row:
        return f"{row['auc']:.2f}"
    return "{auc:.2f} ({auc_low:.2f} to {auc_high:.2f})".format(**row)


def _date_in(words: str) -> datetime.date | None:
    with contextlib.suppress(ValueError):
        if found := _DATE.search(words):
            return datetime.date(*map(int, found.group(1, 2, 3)))
        if found := _WRITTEN.search(words):
            month = 1 + _MONTHS.index(found[1]) // 3
            return datetime.date(int(found[3]), month, int(found[2]))
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e
    except UnicodeDecodeError as e:
        raise InputError(f"{path}: byte {e.start}: not UTF-8") from e


def _read_date(words: str, place: str) -> datetime.date:
    if (found := _date_in(words)) is None:
        raise InputError(f"{place} must be a date such as 2025-01-01, got {words!r}")
    return found


if __name__ == "__main__":
    sys.exit(study.run_study("wikimia", WikiMIA))
