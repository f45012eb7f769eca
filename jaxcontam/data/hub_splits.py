"""Data files of one split of a dataset on the hub, found by name and downloaded.

No code of the dataset runs and nothing is unpickled. A split's files are those whose
path names it; a dataset whose files name no split is one split called train, as on the
hub.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from jaxcontam.data.files import HUB_PREFIX
from jaxcontam.errors import InputError

SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".txt")
_USUAL = ("train", "test", "validation", "valid", "dev", "eval")
# Where the hub keeps its own copy of most datasets as CONFIG/SPLIT/0000.parquet.
_CONVERTED = "refs/convert/parquet"
_DEFAULT = "default"

_Answer = TypeVar("_Answer")


@dataclasses.dataclass(frozen=True, slots=True)
class HubSplit:
    """A split of a dataset on the hub: `hf:ORG/NAME[@REVISION][:CONFIG]:SPLIT`.

    Attributes:
        revision: None is what the hub shows now.
    """

    dataset: str
    config: str | None
    split: str
    revision: str | None = None

    @property
    def name(self) -> str:
        """Name in reports."""
        parts = [self.dataset.split("/")[-1], self.config, self.split]
        return "-".join(part for part in parts if part)


def is_hub_split(source: str | Path) -> bool:
    """Tell a split on the hub from a file."""
    return str(source).startswith(HUB_PREFIX)


def parse_hub_split(source: str) -> HubSplit:
    """Read `hf:ORG/NAME[@REVISION][:CONFIG]:SPLIT`."""
    pinned, *rest = source.removeprefix("hf:").split(":")
    dataset, at, revision = pinned.partition("@")
    is_name = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", dataset) and bool(at) == bool(
        revision
    )
    if revision:
        check_revision(revision, source)
    if not is_name or not (len(rest) in (1, 2) and all(rest)):
        raise InputError(
            f"{source}: not a split on the hub",
            hint="write hf:ORG/NAME:SPLIT or hf:ORG/NAME:CONFIG:SPLIT, such as "
            "hf:swj0419/WikiMIA:WikiMIA_length64; NAME@REVISION fixes the revision",
        )
    config = rest[0] if len(rest) == 2 else None
    return HubSplit(dataset, config, rest[-1], revision or None)


def check_revision(revision: str, source: str) -> None:
    """Refuse what is no commit, tag or branch before the hub is asked for it."""
    parts = revision.split("/")
    if not all(re.fullmatch(r"[\w-][\w.+-]*", part) for part in parts):
        raise InputError(
            f"{source}: {revision!r} is not a revision on the hub",
            hint="name a commit, a tag or a branch after @, such as @main",
        )


def download_split(wanted: HubSplit) -> tuple[Path, ...]:
    """Download a split's files, in the order of their names."""
    revision = wanted.revision
    pinned = wanted.dataset if revision is None else f"{wanted.dataset}@{revision}"
    source = ":".join(p for p in (pinned, wanted.config, wanted.split) if p)
    paths = _asked(source, lambda: _list_files(wanted.dataset, revision))
    found = files_of_split(paths, wanted)
    # The hub's own copy is of no revision but the newest.
    if not found and revision is None:
        revision = _CONVERTED
        try:
            converted = list(_list_files(wanted.dataset, revision))
        except Exception:  # it has none, which is no fault of the user's
            converted = []
        found = _converted_files(converted, wanted)
    if not found:
        names = [path for path in paths if path.endswith(SUFFIXES)]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise InputError(
            f"hf:{source}: no file of that split (it has: {shown or 'no data files'})",
            hint="download a file that names no split and give its path",
        )
    return tuple(
        Path(_asked(source, lambda p=path: _download(wanted.dataset, p, revision)))
        for path in found
    )


def files_of_split(paths: Sequence[str], wanted: HubSplit) -> list[str]:
    """Paths that hold a split, of one kind: parquet where there is any."""
    data = [path for path in paths if path.endswith(SUFFIXES) and _is_data(path)]
    if wanted.config is not None:
        data = [path for path in data if _names(path, wanted.config)]
    found = [path for path in data if _names(path, wanted.split)]
    if (
        not found
        and wanted.split == "train"
        and not any(_names(path, word) for path in data for word in _USUAL)
    ):
        found = data
    for suffix in SUFFIXES:
        if same := sorted(path for path in found if path.endswith(suffix)):
            if wanted.config is None:
                _check_one_subset(same, wanted)
            return same
    return []


def _check_one_subset(paths: Sequence[str], wanted: HubSplit) -> None:
    """Refuse files that are not the numbered parts of one table."""
    kinds = sorted({_without_number(path, wanted.split) for path in paths})
    if len(kinds) > 1:
        shown = ", ".join(kinds[:8]) + (", ..." if len(kinds) > 8 else "")
        raise InputError(
            f"hf:{wanted.dataset}:{wanted.split}: {len(kinds)} subsets have that split "
            f"({shown})",
            hint=f"hf:{wanted.dataset}:CONFIG:{wanted.split} chooses one, such as "
            f"CONFIG = {_subset_word(kinds, wanted.split)}; or download one by hand",
        )


def _without_number(path: str, split: str) -> str:
    """A path without its suffix and the number of a part."""
    stem = path.rsplit(".", 1)[0]
    whole, n_found = re.subn(r"[-_.]?\d+-of-\d+(-[0-9a-f]+)?$", "", stem)
    if n_found:
        return whole
    # WikiMIA_32 and WikiMIA_64 are two tables, for they name no split.
    number = r"\d+" if _names(path, split) else r"(0\d+|\d{5,})"
    return re.sub(rf"((?<=/)|^|[-_.]){number}$", "", stem)


def _subset_word(kinds: Sequence[str], split: str) -> str:
    """The first part of a path that no other path has, and that is not the split."""
    count = Counter(part for kind in kinds for part in kind.split("/"))
    own = (part for part, n in count.items() if n == 1 and part != split)
    return next(own, kinds[-1])


def _converted_files(paths: Sequence[str], wanted: HubSplit) -> list[str]:
    """Files of the hub's own copy: CONFIG/SPLIT/NUMBER.parquet."""
    configs = {path.split("/")[0] for path in paths if path.count("/") == 2}
    config = wanted.config
    if config is None:
        config = _DEFAULT if len(configs) != 1 else configs.pop()
    start = f"{config}/{wanted.split}/"
    return sorted(p for p in paths if p.startswith(start) and p.endswith(".parquet"))


def _is_data(path: str) -> bool:
    name = path.rsplit("/", 1)[-1].lower()
    return not name.startswith((".", "readme", "license", "dataset_info"))


def _names(path: str, word: str) -> bool:
    """Tell if a path names a split or subset; `_` ends a usual name only."""
    ends = "[/._-]" if word in _USUAL else "[/.-]"
    return bool(re.search(rf"(^|{ends}){re.escape(word)}({ends}|$)", path))


def _asked(source: str, ask: Callable[[], _Answer]) -> _Answer:
    """Answer of the hub, with any error as one `InputError`."""
    try:
        return ask()
    except Exception as e:  # requests, httpx and the hub each have types of their own
        line = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise InputError(
            f"hf:{source}: not readable from the hub ({line[:200]})",
            hint="check the name and the network, or download the split's file by hand "
            "and give its path",
        ) from e


def _list_files(dataset: str, revision: str | None) -> Sequence[str]:
    from huggingface_hub import HfApi

    # Asked once: what lists a tree tries again for half a minute.
    found = HfApi().dataset_info(dataset, revision=revision)
    return [file.rfilename for file in found.siblings or ()]


def _download(dataset: str, path: str, revision: str | None) -> str:
    from huggingface_hub import hf_hub_download

    found = hf_hub_download(dataset, path, revision=revision, repo_type="dataset")
    return str(found)
