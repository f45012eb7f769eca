"""What does a second process save by programs that the first one compiled?"""

import hashlib
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

from eval.speed.subjects import decoder_of, random_ids, real_lengths


def measure_compiled(*, tiny: bool) -> dict:
    """Seconds of a 30 M model's first scores, in a first and in a second process.

    Real lengths, so all buckets are compiled. One measurement of each; a third process
    without the folder would be another first one.
    """
    found = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(2):
            with multiprocessing.get_context("spawn").Pool(1) as fresh:
                found.append(fresh.apply(first_scores, (cache, tiny)))
        files = [path for path in Path(cache).rglob("*") if path.is_file()]
        megabytes = sum(path.stat().st_size for path in files) * 1e-6
    (first, bits), (second, bits_again) = found
    return {
        "first_seconds": first,
        "second_seconds": second,
        "same_bits": bits == bits_again,
        "n_files": len(files),
        "megabytes": megabytes,
    }


def first_scores(cache: str, tiny: bool) -> tuple[float, str]:
    """Seconds until texts are scored, compilation included, and a digest of the scores.

    For a process of its own, which has compiled nothing.
    """
    os.environ["XDG_CACHE_HOME"] = cache
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    from jaxcontam.scoring.compiled import keep_compiled
    from jaxcontam.scoring.local import local_scorer

    keep_compiled()
    decoder = decoder_of("30m", tiny=tiny)
    scorer = local_scorer(decoder)
    lengths = real_lengths(4 if tiny else 32, tiny=tiny)
    texts = random_ids(decoder.config.vocab_size, lengths, seed=0)
    start = time.perf_counter()
    scores = scorer.tokens(texts)
    seconds = time.perf_counter() - start
    digest = hashlib.sha256(b"".join(part.tobytes() for part in scores))
    return seconds, digest.hexdigest()
