"""Every command of the study, and the counting of what it says."""

import concurrent.futures
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from eval.clean_files import answers, matrices, members, orders
from eval.clean_files.findings import Finding, Tally, added, tallied
from jaxcontam.progress import progress_bar

Ask = Callable[[int, Path], Iterator[Finding]]
"""(number of a file, folder for it) -> what is said of it."""

COMMANDS: Mapping[str, tuple[Ask, float]] = {
    "released": (orders.released, 1.0),
    "shuffled": (orders.shuffled, 1.0),
    "natural": (orders.natural, 0.4),
    "options": (orders.options, 1.0),
    "labelled": (members.labelled, 0.15),
    "asked": (members.asked, 0.2),
    "reference": (members.beside_reference, 0.06),
    "replicate": (answers.replicate, 1.0),
    "inflation": (answers.inflation, 1.0),
    "prove": (matrices.prove, 1.0),
    "canary": (matrices.canary, 1.0),
    "chat": (matrices.canary_chat, 1.0),
    "variants": (matrices.variants, 1.0),
}
"""What is asked, and the share of `--n-files` that it is asked of: less of what costs
more, such as the baselines of `membership`."""

# Files that a process takes at once.
_CHUNK = 25


def counts(
    name: str, n_files: int, seed: int, *, processes: int = 1
) -> dict[str, Tally]:
    """What a command says of its share of files, from file `seed` on, by cell."""
    n = max(1, round(COMMANDS[name][1] * n_files))
    chunks = [
        range(seed + start, seed + min(start + _CHUNK, n))
        for start in range(0, n, _CHUNK)
    ]
    if processes == 1:
        return added(_counted(name, chunk) for chunk in chunks)
    spawn = multiprocessing.get_context("spawn")
    with (
        progress_bar(name, unit="files/s") as progress,
        concurrent.futures.ProcessPoolExecutor(processes, mp_context=spawn) as pool,
    ):
        waiting = [pool.submit(_counted, name, chunk) for chunk in chunks]
        found = []
        for number, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            found.append(future.result())
            progress(min(n, number * _CHUNK), n)
    return added(found)


def _counted(name: str, files: Sequence[int]) -> dict[str, Tally]:
    findings: list[Finding] = []
    for number in files:
        with tempfile.TemporaryDirectory() as folder:
            findings += COMMANDS[name][0](number, Path(folder))
    return tallied(findings)
