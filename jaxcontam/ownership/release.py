"""`jaxcontam release`: a secret seeded order, for an exact proof later."""

import difflib
import os
import secrets
from pathlib import Path

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
from jaxcontam.ownership.flags import Release
from jaxcontam.reports.report import utc_now
from jaxcontam.reports.report_files import write_new_files
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import printable, shell_line


def release_or_check(command: Release) -> None:
    """Write the reordered file and its seed, or check them."""
    _check_is_there(command.benchmark)
    console = Terminal()
    if command.check:
        found = _checked(command, command.benchmark)
        console.say(
            f"{printable(command.benchmark)}: the file and the order of "
            f"{printable(command.seed_file)}, "
            f"released {found.made}",
            f"commitment: {found.sha256}",
        )
    else:
        out = command.out or command.benchmark.with_stem(
            f"{command.benchmark.stem}-released"
        )
        if out.suffix.lower() != command.benchmark.suffix.lower():
            raise InputError(
                f"{out}: must end in {command.benchmark.suffix}",
                hint="keep the format of the benchmark",
            )
        data, release = make_release(
            command.benchmark,
            seed=secrets.token_bytes(SEED_BYTES),
            version=__version__,
            made=utc_now(),
            no_header=command.no_header,
        )
        sealed = release.to_bytes()
        write_new_files([(command.seed_file, sealed, 0o600), (out, data, 0o644)])
        found = _checked(command, out)
        test = ["jaxcontam", "audit", "MODEL", path_word(out)]
        test += ["--order", path_word(command.seed_file)]
        console.say(
            f"released: {printable(out)}, {release.n_examples:,} examples in a "
            "secret order",
            f"seed file: {printable(command.seed_file)} (keep it secret, and do not "
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


def _checked(command: Release, path: Path) -> Commitment:
    return check_release(path, command.seed_file, no_header=command.no_header)


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
