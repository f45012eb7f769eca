"""`jaxcontam release`: a secret seeded order, for an exact proof later."""

import dataclasses
import difflib
import os
import secrets
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from jaxcontam import __version__
from jaxcontam.arguments import path_word
from jaxcontam.data.benchmark import SUFFIXES
from jaxcontam.data.files import HUB_PREFIX, TFDS_PREFIX, Commitment
from jaxcontam.data.release import (
    SEED_BYTES,
    check_release,
    make_release,
    search_warnings,
)
from jaxcontam.errors import InputError
from jaxcontam.reports.report import utc_now
from jaxcontam.reports.report_files import write_new_files
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import printable, shell_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """Put a benchmark into a secret seeded order, for an exact proof later.

    Examples:
        # a secret random order
        jaxcontam release test.jsonl --seed-file test.seed.json
        jaxcontam release test-released.jsonl --seed-file test.seed.json --check
    """

    benchmark: Positional[Path]
    """File to publish: .jsonl, .json, .csv, .tsv, .txt."""
    seed_file: Annotated[Path, tyro.conf.arg(metavar="SEED.json")]
    """File for the secret seed, or with --check the file that holds it; never
    overwritten."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="NAME-released.jsonl")] = None
    """Output file (default: NAME-released in the benchmark's folder)."""
    no_header: bool = False
    """Read the first row of a .csv or .tsv file as an example too."""
    check: bool = False
    """Check that BENCHMARK is the file and the order of the seed; write nothing."""

    def __post_init__(self) -> None:
        if self.check and self.out is not None:
            raise InputError("--check writes nothing", hint="leave out --out")

    def run(self) -> None:
        """Write the reordered file and its seed, or check them."""
        _check_is_there(self.benchmark)
        console = Terminal()
        if self.check:
            found = self._checked(self.benchmark)
            console.say(
                f"{printable(self.benchmark)}: the file and the order of "
                f"{printable(self.seed_file)}, "
                f"released {found.made}",
                f"commitment: {found.sha256}",
            )
        else:
            out = self.out or self.benchmark.with_stem(
                f"{self.benchmark.stem}-released"
            )
            if out.suffix.lower() != self.benchmark.suffix.lower():
                raise InputError(
                    f"{out}: must end in {self.benchmark.suffix}",
                    hint="keep the format of the benchmark",
                )
            data, release = make_release(
                self.benchmark,
                seed=secrets.token_bytes(SEED_BYTES),
                version=__version__,
                made=utc_now(),
                no_header=self.no_header,
            )
            sealed = release.to_bytes()
            write_new_files([(self.seed_file, sealed, 0o600), (out, data, 0o644)])
            found = self._checked(out)
            test = ["jaxcontam", "audit", "MODEL", path_word(out)]
            test += ["--order", path_word(self.seed_file)]
            console.say(
                f"released: {printable(out)}, {release.n_examples:,} examples in a "
                "secret order",
                f"seed file: {printable(self.seed_file)} (keep it secret, and do not "
                "lose it)",
                f"commitment: {found.sha256}",
            )
            console.tell(
                "Publish the released file alone, and this commitment with its date. "
                "It is the SHA-256 of the seed file: whoever gets that file later can "
                "see that the order was drawn before any model was tested."
            )
            console.say(f"Test a model with: {shell_line(test)}")
        for words in search_warnings([found]):
            console.tell(f"warning: {words}")

    def _checked(self, path: Path) -> Commitment:
        return check_release(path, self.seed_file, no_header=self.no_header)


def _check_is_there(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path}: is a folder", hint="name one file")
    if os.path.lexists(path) or str(path).startswith((HUB_PREFIX, TFDS_PREFIX)):
        return
    try:
        beside = sorted(path.parent.iterdir())
    except OSError:
        return  # The reader says what is wrong with the folder.
    known = {found.stem: found for found in beside if found.suffix.lower() in SUFFIXES}
    close = difflib.get_close_matches(path.stem, known, n=1)
    hint = f"a benchmark is a file that ends in {', '.join(SUFFIXES)}"
    if close:
        hint = f"did you mean {str(known[close[0]])!r}?"
    raise InputError(f"{path}: no such file", hint=hint)
