"""How much memory does an audit of many rows take, the whole process at its peak?"""

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flax import nnx
from transformers import PreTrainedTokenizerFast

from eval.speed.growth import byte_tokenizer, write_questions
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.decoder import Decoder
from train.config import PRESETS

# Eight words of seven letters: 63 characters, and as many ids.
_WORDS_A_ROW, _CONTEXT = 8, 256
# A process begins with the peak of the one that started it, which here holds torch: the
# audit is started by a small one. This study's one core is for times, and an audit
# starts threads for each core. Linux counts kilobytes.
_LAUNCHER = """
import json, os, resource, subprocess, sys
os.sched_setaffinity(0, range(os.cpu_count()))
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps({"peak_bytes": peak, "exit_code": done.returncode}))
"""


def measure_audit(_rounds: int, *, tiny: bool) -> dict[str, Any]:
    """Peak of `jaxcontam audit --order random`, 100,000 short rows: the whole process.

    The model has the shape of the smallest preset, a context of 256 and random weights:
    what is measured is the audit.

    Returns:
        Rows, characters a row, peak bytes (RUSAGE_CHILDREN), exit code and seconds.
    """
    n = 1_000 if tiny else 100_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = write_questions(folder, n, words_a_row=_WORDS_A_ROW)
        _write_model(folder / "model")
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
    size = {"rows": n, "characters": 8 * _WORDS_A_ROW - 1}
    return {**size, **json.loads(done.stdout), "seconds": seconds}


def _write_model(folder: Path) -> None:
    shape = dataclasses.replace(PRESETS["pulse"].decoder, context=_CONTEXT)
    fast = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer())
    save_checkpoint(Decoder(shape, rngs=nnx.Rngs(0)), fast, folder)
