"""How much memory does an audit of many rows take, the whole process at its peak?"""

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from flax import nnx
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from eval.speed.measure import Table
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.decoder import Decoder
from train.config import PRESETS

# Eight words of seven letters: 63 characters, and as many ids.
_WORDS_A_ROW, _N_WORDS = 8, 5_000
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
        path = _write_questions(folder, n)
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


def _write_questions(folder: Path, n: int) -> Path:
    """A file of n questions, each of random words of seven letters."""
    rng = np.random.default_rng(0)
    letters = rng.integers(97, 123, (_N_WORDS, 7), np.uint8)
    words = [row.tobytes().decode() for row in letters]
    path = folder / f"{n}.jsonl"
    with path.open("w") as file:
        for _ in range(n):
            chosen = rng.integers(_N_WORDS, size=_WORDS_A_ROW).tolist()
            question = " ".join(words[i] for i in chosen)
            file.write(json.dumps({"question": question}) + "\n")
    return path
