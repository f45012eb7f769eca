"""What do membership scores find, and when?

Question: how well does each score tell texts that a model was trained on from texts
that it was not, by number of copies, size of the corpus, likeness to it, learning rate,
size of the model and length of the text, and does a model answer examples better that
it saw? Shi et al., arXiv:2310.16789, sections 5.2 and 6, on models trained here, whose
members and non-members are drawn at random from one pool.
Command: `python -m eval.membership`. Hardware: one CPU core, half an hour for all
studies, at most eight minutes for one; nothing is downloaded. Headline: LOG.md.

Everything is scaled down: models of 0.16 to 1.3 M weights, corpora of at most 0.9 M
tokens. Trends can be compared with the paper's, numbers cannot.
"""

import dataclasses
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.membership.bench import FULL, TINY, Bench
from eval.membership.copies import copies_study
from eval.membership.downstream import (
    Found,
    accuracy_study,
    corpus_study,
    indistribution_study,
    occurrence_study,
    rate_study,
    tasks_study,
)
from eval.membership.page import write_page
from eval.membership.sizes import sizes_study
from eval.membership.table import print_study
from eval.membership.tasks import read_task
from eval.membership.texts import Pool, read_pool
from eval.study import run_study
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.errors import unknown_name
from jaxcontam.report.document import make_folder, replace_bytes
from jaxcontam.report.provenance import library_versions, utc_now
from jaxcontam.scoring.identity import cpu_name
from train.earlier import code_version
from train.sources import corpus_digest, read_documents

STUDIES: Mapping[str, Callable[[Bench], Found]] = {
    "copies": copies_study,
    "tasks": tasks_study,
    "indistribution": indistribution_study,
    "occurrence": occurrence_study,
    "rate": rate_study,
    "accuracy": accuracy_study,
    "corpus": corpus_study,
    "sizes": sizes_study,
}

# Of the files of studies: those of another layout are not shown.
_SCHEMA = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Train models on known texts, then see what membership scores say of them."""

    studies: tuple[str, ...] = ()
    """Which (default: all): copies tasks indistribution occurrence rate accuracy
    corpus sizes."""
    corpus: tuple[Path, ...] = ()
    """Background: .jsonl files with a field `text`, .txt files or folders (default:
    documentation and code of this Python installation)."""
    tasks: tuple[Path, ...] = ()
    """Multiple-choice files to plant (default: made of this Python's docstrings)."""
    question_field: str = "question"
    """Field of the question in these files."""
    models: int = 2
    """Seeds of each setting."""
    seed: int = 0
    """The first of them."""
    any_code: bool = False
    """Take finished models that other code trained; their manifests say which."""
    out: Path = Path("runs/membership-study")
    """Folder of models, scores, a file for each study and membership.html."""
    tiny: bool = False
    """A pulse run of minutes, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "models")
        for name in self.studies:
            if name not in STUDIES:
                raise unknown_name("study", name, STUDIES)

    def run(self) -> dict[str, Any]:
        """Train and score what is missing, print tables; returns what was found.

        A study is written when it is done. The page shows all studies in the folder
        that have the same texts and scale.
        """
        console = Console()
        bench = self._bench()
        make_folder(self.out)
        key = _key(bench)
        for name in self.studies or tuple(STUDIES):
            print(f"eval.membership: {name}", file=sys.stderr, flush=True)
            started, clock, cpu = utc_now(), time.monotonic(), time.process_time()
            found = STUDIES[name](bench)
            document = {
                "study": name,
                "key": key,
                "command": ["eval.membership", *flags_of(self)],
                "started": started,
                "wall_seconds": round(time.monotonic() - clock, 1),
                "cpu_seconds": round(time.process_time() - cpu, 1),
                "cpu": cpu_name(),
                "code": code_version(),
                "versions": library_versions(),
                "seeds": list(bench.seeds),
                "scale": dataclasses.asdict(bench.scale),
                **dataclasses.asdict(found),
            }
            text = json.dumps(document, indent=1, allow_nan=False) + "\n"
            replace_bytes(self.out / f"{name}.json", text.encode())
            print_study(document, console)
        documents = _read_all(self.out, key)
        page = write_page(list(documents.values()), self.out)
        console.print(f"\npage: {page}", soft_wrap=True, highlight=False)
        return documents

    def _bench(self) -> Bench:
        pool = read_pool()
        if self.corpus:
            # Questions stay; those that the user's corpus holds too are few.
            pool = Pool(tuple(read_documents(self.corpus)), pool.questions)
        return Bench(
            scale=TINY if self.tiny else FULL,
            pool=pool,
            tasks=tuple(
                read_task(path, question_field=self.question_field)
                for path in self.tasks
            ),
            seeds=tuple(range(self.seed, self.seed + self.models)),
            out=self.out,
            any_code=self.any_code,
        )


def _key(bench: Bench) -> str:
    """Digest of what all studies of a folder must share to stand on one page."""
    inputs = [
        _SCHEMA,
        dataclasses.asdict(bench.scale),
        corpus_digest(bench.pool.documents),
        [[item.versions for item in task.items] for task in bench.tasks],
    ]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _read_all(out: Path, key: str) -> dict[str, Any]:
    """Studies of the folder that share a key, in their order."""
    found = {}
    for name in STUDIES:
        try:
            document = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(document, dict) and document.get("key") == key:
            found[name] = document
    return found


def main() -> int:
    """Command line of `python -m eval.membership`."""
    return run_study("membership", Membership, trains=True, compiles=True)


if __name__ == "__main__":
    sys.exit(main())
