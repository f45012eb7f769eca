"""How time and memory grow with a file: reading, checks, a dry run, a whole audit.

Processor seconds of each, at ten times as many rows from step to step. An exponent of
1 is linear; n log n is 1.1 between 1,000 and 10,000 rows.
"""

import dataclasses
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from eval.speed.measure import Table
from jaxcontam.data.benchmark import Benchmark, load_benchmark, without_repeats
from jaxcontam.data.encoding import encode_examples
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.orders.benchmarks import order_checks
from jaxcontam.orders.design import AuditDesign
from jaxcontam.orders.methods import DIRECTION
from jaxcontam.orders.order_test import plan_test
from jaxcontam.scoring.pair_scorer import PairScorer
from jaxcontam.scoring.scorer import Scorer
from train.config import PRESETS

_WORDS_A_ROW, _N_WORDS, _CONTEXT, _BATCH = 20, 5_000, 1_024, 4_096
# What a first call imports is in no time.
_WARM = 100


def measure_growth(most: int, _rounds: int, *, tiny: bool) -> Table:
    """Seconds of each part at 10^3 rows up to 10^most, and exponents between sizes.

    Rows are questions of 20 random words, which every check has to look at and none
    has much to say of; they are counted in ids of one byte.
    """
    sizes = [_WARM, 2 * _WARM] if tiny else [10**k for k in range(3, most + 1)]
    with tempfile.TemporaryDirectory() as folder:
        spent = [_seconds(write_questions(Path(folder), n)) for n in (_WARM, *sizes)]
    table: Table = {}
    for part in spent[0]:
        own = [one[part] for one in spent[1:]]
        found = zip(sizes[1:], exponents(sizes, own), strict=True)
        table[part] = {f"{n:,} rows, s": s for n, s in zip(sizes, own, strict=True)}
        table[part] |= {f"exponent to {n:,}": exponent for n, exponent in found}
    return table


def exponents(sizes: Sequence[int], seconds: Sequence[float]) -> list[float]:
    """Between neighbouring sizes, the power of the size by which seconds grow."""
    logs = [
        (math.log(n), math.log(max(spent, 1e-9)))
        for n, spent in zip(sizes, seconds, strict=True)
    ]
    return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(logs)]


def _seconds(path: Path) -> dict[str, float]:
    found: dict[str, float] = {}

    def timed(part: str, call: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = call()
        found[part] = time.process_time() - start
        return result

    benchmark = timed(
        "load", lambda: without_repeats(load_benchmark(path, text_field="question"))
    )
    timed("checks", lambda: order_checks(benchmark, AuditDesign()))
    timed("plan", lambda: _dry_run(benchmark))
    return found


def _dry_run(benchmark: Benchmark) -> int:
    """Target tokens of the test that is on by default, counted as a dry run does."""
    planned = plan_test(
        benchmark,
        encode_examples(byte_tokenizer(), benchmark.texts),
        DIRECTION,
        prefix_id=None,
        context=_CONTEXT,
        seed=0,
    )
    pairs = PairScorer(_unasked, context=_CONTEXT, batch_tokens=_BATCH)
    scorer = Scorer(_unasked, context=_CONTEXT, batch_tokens=_BATCH, pairs=pairs)
    return planned.layout.cost(scorer, None).n_targets


def _unasked(*_: object) -> list[object]:
    raise AssertionError("a dry run asks no model")


# Eight words of seven letters: 63 characters, and as many ids.
_WORDS_A_SHORT_ROW = 8
# A process begins with the peak of the one that started it, which here holds JAX: the
# audit is started by a small one. This study's one core is for times, and an audit
# starts threads for each core. Linux counts kilobytes.
_LAUNCHER = """
import json, os, resource, subprocess, sys
os.sched_setaffinity(0, range(os.cpu_count()))
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps({"peak GB": 1e-9 * peak, "exit code": done.returncode}))
"""


def measure_audit(_rounds: int, *, tiny: bool) -> Table:
    """Peak of `jaxcontam audit --order random`, 100,000 short rows: the whole process.

    The model has the shape of the smallest preset, a context of 256 and random weights:
    what is measured is the audit.
    """
    n = 1_000 if tiny else 100_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = write_questions(folder, n, words_a_row=_WORDS_A_SHORT_ROW)
        shape = dataclasses.replace(PRESETS["pulse"].decoder, context=256)
        fast = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer())
        save_checkpoint(Decoder(shape, rngs=nnx.Rngs(0)), fast, folder / "model")
        words = ["audit", folder / "model", path, "--text", "question"]
        words += ["--order", "random", "--out", folder / "out"]
        start = time.monotonic()
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _LAUNCHER,
                sys.executable,
                "-m",
                "jaxcontam",
                *words,
            ],
            stdout=subprocess.PIPE,
            check=True,
        )
        seconds = time.monotonic() - start
    return {f"{n:,} rows": {**json.loads(done.stdout), "seconds": seconds}}


def byte_tokenizer() -> Tokenizer:
    """One id a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def write_questions(folder: Path, n: int, *, words_a_row: int = _WORDS_A_ROW) -> Path:
    """A file of n questions, each of random words of seven letters."""
    rng = np.random.default_rng(0)
    letters = rng.integers(97, 123, (_N_WORDS, 7), np.uint8)
    words = [row.tobytes().decode() for row in letters]
    path = folder / f"{n}.jsonl"
    with path.open("w") as file:
        for _ in range(n):
            chosen = rng.integers(_N_WORDS, size=words_a_row).tolist()
            question = " ".join(words[i] for i in chosen)
            file.write(json.dumps({"question": question}) + "\n")
    return path
