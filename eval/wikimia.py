"""A new WikiMIA: events older than a model's data against events newer than it.

Question: which texts can a model trained before a date have seen, and which not?
Command: `python -m eval.wikimia --pages FILE --cutoff 2023-01-01`, with records of
pages that you downloaded. Hardware: one CPU core, a minute for 100,000 pages.
Headline: none; it makes the files that
`jaxcontam membership MODEL OUT/WikiMIA_length64.jsonl` reads.

Old and new events differ in their years and words, so that labels can be told from the
texts without any model: read an AUC on these files beside its blind baseline.
"""

import dataclasses
import datetime
import json
import re
import sys
from collections.abc import Collection
from pathlib import Path

from rich.console import Console
from rich.text import Text

from eval.study import Grid, StudyFlags, print_grid, run_study
from eval.wikimia_pages import (
    NOT_DRAWN,
    RULES,
    Candidates,
    Cut,
    draw_cut,
    drop_near_duplicates,
    read_candidates,
)
from jaxcontam import __version__
from jaxcontam.errors import InputError
from jaxcontam.report.report_files import data_digest, make_folder, replace_bytes

MANIFEST = "manifest.json"
_FILE_NAME = re.compile(r"WikiMIA_length[0-9]+\.jsonl")
_TINY_RECORDS = 200


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WikiMIA(StudyFlags):
    """Build labelled texts from page records with creation dates."""

    pages: Path
    """.jsonl of {"title", "text", "created", "event" or "categories"}."""
    cutoff: str = "2023-01-01"
    """Pages created on this day or later are non-members."""
    members_before: str = "2017-01-01"
    """Pages created before this day are members."""
    lengths: tuple[int, ...] = (32, 64, 128, 256)
    """Words of the texts, one file each."""
    out: Path = Path("runs/wikimia")
    """Folder for the files and their manifest."""
    tiny: bool = False
    """Read the first 200 records alone."""

    def __post_init__(self) -> None:
        StudyFlags.__post_init__(self)
        cutoff, before = self.dates
        if before > cutoff:
            raise InputError(
                f"--members-before {before} is later than --cutoff {cutoff}",
                hint="a page must not be old and recent at once",
            )
        if not self.lengths or min(self.lengths) < 1:
            raise InputError("--lengths must be numbers of words, each at least 1")

    @property
    def dates(self) -> tuple[datetime.date, datetime.date]:
        """Cutoff, and the day before which members were created."""
        return (
            _date(self.cutoff, "--cutoff"),
            _date(self.members_before, "--members-before"),
        )

    def run(self) -> dict:
        """Read, drop, draw, write; returns the manifest."""
        cutoff, members_before = self.dates
        lengths = sorted(set(self.lengths))
        limit = _TINY_RECORDS if self.tiny else None
        found = read_candidates(
            self.pages,
            cutoff=cutoff,
            members_before=members_before,
            lengths=lengths,
            limit=limit,
        )
        found = drop_near_duplicates(
            found, self.pages, cutoff=cutoff, lengths=lengths, limit=limit
        )
        _check_sides(found, self.pages)
        make_folder(self.out)
        files = {}
        for length in lengths:
            cut, n_left = draw_cut(found.pages, length, seed=self.seed)
            if not cut.texts:
                continue
            name = f"WikiMIA_length{length}.jsonl"
            files[name] = _write(self.out / name, cut) | {NOT_DRAWN: n_left}
        manifest = self._manifest(found, files)
        _remove_earlier(self.out, files)
        text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
        replace_bytes(self.out / MANIFEST, text.encode())
        _print(manifest, self.out, Console())
        return manifest

    def _manifest(self, found: Candidates, files: dict) -> dict:
        """Everything but the clock, so that the same run writes the same bytes."""
        return {
            "jaxcontam": __version__,
            "seed": self.seed,
            "pages": self.pages.name,
            "cutoff": self.cutoff,
            "members_before": self.members_before,
            "near_duplicate_rules": list(RULES),
            "n_records": found.n_records,
            "n_members": sum(page.is_member for page in found.pages),
            "n_nonmembers": sum(not page.is_member for page in found.pages),
            "dropped": found.dropped,
            "files": files,
        }


def _date(words: str, flag: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(words)
    except ValueError as e:
        raise InputError(
            f"{flag} must be a date such as 2023-01-01, got {words!r}"
        ) from e


def _check_sides(found: Candidates, path: Path) -> None:
    n_members = sum(page.is_member for page in found.pages)
    for n, what in (
        (n_members, "members"),
        (len(found.pages) - n_members, "non-members"),
    ):
        if not n:
            reasons = ", ".join(f"{n} {why}" for why, n in found.dropped.items())
            raise InputError(
                f"{path}: no {what} are left of {found.n_records} records "
                f"(dropped: {reasons or 'nothing'})",
                hint="check --cutoff, --members-before and the field of events",
            )


def _write(path: Path, cut: Cut) -> dict:
    """Write rows as WikiMIA has them; what the manifest says of them."""
    lines = [
        json.dumps({"input": text, "label": int(label)}, ensure_ascii=False) + "\n"
        for text, label in zip(cut.texts, cut.labels, strict=True)
    ]
    data = "".join(lines).encode()
    replace_bytes(path, data)
    return {
        "digest": data_digest(data),
        "n_members": sum(cut.labels),
        "n_nonmembers": len(cut.labels) - sum(cut.labels),
        "titles": list(cut.titles),
    }


def _remove_earlier(out: Path, files: Collection[str]) -> None:
    """Remove files of an earlier run here, which the new manifest does not name.

    They may be of other pages or dates.

    Args:
        out: The folder.
        files: Names of those of this run.
    """
    try:
        earlier = json.loads((out / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return
    named = earlier.get("files") if isinstance(earlier, dict) else None
    for name in named if isinstance(named, dict) else ():
        # No other name is one that this program gives, whatever a manifest says.
        if _FILE_NAME.fullmatch(name) and name not in files:
            (out / name).unlink(missing_ok=True)


def _print(manifest: dict, out: Path, console: Console) -> None:
    dropped = {f"dropped: {why}": n for why, n in manifest["dropped"].items()}
    counts = {"read": manifest["n_records"]} | dropped
    for side in ("members", "nonmembers"):
        counts[f"left as {side}"] = manifest[f"n_{side}"]
    columns = {"records": "{r[0]}", "": "{r[1]:,}"}
    print_grid(Grid.of("Pages", counts.items(), columns), console)
    lines = []
    for name, row in manifest["files"].items():
        sides = f"{row['n_members']} members, {row['n_nonmembers']} others"
        lines.append(f"{out / name}: {sides}")
    lines.append(
        "Old and new events differ by themselves: read an AUC on these files beside "
        "its blind baseline."
    )
    for line in lines:
        console.print(Text(line), soft_wrap=True)


if __name__ == "__main__":
    sys.exit(run_study("wikimia", WikiMIA))
