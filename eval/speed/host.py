"""Work on the host: orders of pair matrices, re-draws, the store, compiled programs.

A pair matrix gives the score of any order of its stratum without a model call. Either
the orders of each stratum are drawn once and the law of the sum over strata is computed
from them (the exact p-value), or all strata are drawn anew for each value of the sum
(for statistics that are no sums). Both must be cheap beside the pair matrix itself.

The store is timed under a forward function that costs nothing, since its share of the
real one's time is smaller than that time's noise.
"""

import hashlib
import itertools
import multiprocessing
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from eval.speed.measure import (
    decoder_of,
    interleaved,
    median_ratio,
    n_parameters,
    random_ids,
    real_lengths,
)
from jaxcontam.scoring.identity import ScoreIdentity, cpu_name

# A thousand examples in strata of 25.
_STRATA, _EXAMPLES = 40, 25
_ORDERS, _FRESH = 10_000, 100_000
# Orders drawn at a time: in cache, and next to no memory.
_CHUNK = 5_000


def measure_orders(rounds: int, *, tiny: bool) -> dict:
    """Seconds and peak megabytes of both ways; one core, interleaved.

    Seconds of the process, not of the clock on the wall: one thread does all the work,
    and there is no rival whose ratio other work on the machine would leave alone.
    """
    rng = np.random.default_rng(0)
    pairs_KNN = rng.normal(size=(_STRATA, _EXAMPLES, _EXAMPLES))
    shrink = 100 if tiny else 1
    ways = {
        "exact": lambda: exact_p(pairs_KNN, _ORDERS // shrink, seed=1),
        "fresh": lambda: fresh_p(pairs_KNN, _FRESH // shrink, seed=1),
    }
    timed = interleaved(ways, rounds, clock=time.process_time)
    return {
        "shape": [_STRATA, _EXAMPLES],
        "orders": {"exact": _ORDERS // shrink, "fresh": _FRESH // shrink},
        "seconds": timed.seconds,
        "median_seconds": {name: timed.median(name) for name in ways},
        "p_value": timed.last,
        "peak_mb": {name: _peak_mb(way) for name, way in ways.items()},
    }


def exact_p(pairs_KNN: np.ndarray, n_orders: int, *, seed: int) -> float:
    """p-value of the file order among `n_orders` a stratum, from the law of the sum.

    Args:
        pairs_KNN: (K, N, N) float64; [k, i, j] is the score of j straight after i.
        n_orders: Random orders per stratum.
        seed: Seeds the orders.
    """
    from jaxcontam.stats.lattice import lattice_tail

    rng = np.random.default_rng(seed)

    def differences() -> Iterator[np.ndarray]:
        for pairs_NN in pairs_KNN:
            published = _published(pairs_NN)
            sums = [s - published for s in _drawn_sums(pairs_NN, n_orders, rng)]
            yield np.concatenate([np.zeros(1), *sums])

    return 10.0 ** lattice_tail(differences(), 0.0).log10_upper


def fresh_p(pairs_KNN: np.ndarray, n_orders: int, *, seed: int) -> float:
    """(1 + #{sums as high}) / (B + 1) over B orders of the whole file, strata kept.

    Arguments as in `exact_p`; every stratum is drawn anew in each of the B orders.
    """
    rng = np.random.default_rng(seed)
    sums_B = np.zeros(n_orders)
    for pairs_NN in pairs_KNN:
        start = 0
        for drawn in _drawn_sums(pairs_NN, n_orders, rng):
            sums_B[start : start + len(drawn)] += drawn
            start += len(drawn)
    published = sum(_published(pairs_NN) for pairs_NN in pairs_KNN)
    return (1 + int(np.count_nonzero(sums_B >= published))) / (n_orders + 1)


def _published(pairs_NN: np.ndarray) -> float:
    return float(np.diagonal(pairs_NN, offset=1).sum())


def _drawn_sums(
    pairs_NN: np.ndarray, n_orders: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Sums over neighbours of uniformly random orders, some thousands at a time."""
    n = len(pairs_NN)
    flat = np.ascontiguousarray(pairs_NN).ravel()
    orders_BN = np.tile(np.arange(n), (min(n_orders, _CHUNK), 1))
    for start in range(0, n_orders, _CHUNK):
        drawn_BN = orders_BN[: n_orders - start]
        rng.permuted(drawn_BN, axis=1, out=drawn_BN)
        yield flat.take(drawn_BN[:, :-1] * n + drawn_BN[:, 1:]).sum(axis=1)


def _peak_mb(way: Callable[[], float]) -> float:
    """Most memory that a way's arrays take at once, megabytes; not timed."""
    tracemalloc.start()
    way()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak * 1e-6


# Fifty strata of 20 columns, the size of the published sharded test with fewer orders.
_SHARDS, _COLUMNS, _SCIPY_DRAWS = 50, 20, 2_000


def measure_redraws(rounds: int, *, tiny: bool) -> dict:
    """Re-draws a second of the randomisation engine and of SciPy; interleaved."""
    from scipy.stats import permutation_test

    from jaxcontam.stats.randomisation import N_MONTE_CARLO, redrawn_sums

    values = np.random.default_rng(0).normal(size=(_SHARDS, _COLUMNS))
    columns = tuple(values.T)
    n_scipy = 20 if tiny else _SCIPY_DRAWS

    def scipy_way() -> None:
        permutation_test(
            columns,
            lambda *data, axis: data[0].sum(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=n_scipy,
            alternative="greater",
        )

    timed = interleaved(
        {
            "scipy": scipy_way,
            "jaxcontam": lambda: redrawn_sums(values, n_draws=N_MONTE_CARLO, seed=0),
        },
        rounds,
    )
    draws = {"scipy": n_scipy, "jaxcontam": N_MONTE_CARLO}
    per_draw = {
        name: [s / draws[name] for s in times] for name, times in timed.seconds.items()
    }
    return {
        "shape": [_SHARDS, _COLUMNS],
        "redraws_per_second": {
            name: [1 / s for s in times] for name, times in per_draw.items()
        },
        "ratio": median_ratio(per_draw["scipy"], per_draw["jaxcontam"]),
    }


_N_TEXTS = 32


def measure_store(rounds: int, *, tiny: bool) -> dict:
    """Time of looking for missing rows and writing them, beside a 30 M model's.

    Returns:
        Seconds of each way in each round, microseconds a batch, and the share of the
        scoring time that a look for missing rows and their write take together.
    """
    from jaxcontam.scoring.local import local_scorer
    from jaxcontam.scoring.scorer import Scorer
    from jaxcontam.scoring.store import ScoreStore

    decoder = decoder_of("30m", tiny=tiny)
    real, rng = local_scorer(decoder), np.random.default_rng(0)
    lengths = rng.integers(16, 513, 4 if tiny else _N_TEXTS).tolist()
    texts = random_ids(decoder.config.vocab_size, lengths, seed=0)
    n_batches = len(real.plan(texts)[1])

    def free(inputs_BS: np.ndarray, targets_BS: np.ndarray) -> list[np.ndarray]:
        return [np.zeros(inputs_BS.shape, np.float32)]

    with tempfile.TemporaryDirectory() as directory:
        folders = (Path(directory) / str(i) for i in itertools.count())

        def score(folder: Path | None) -> None:
            store = None if folder is None else ScoreStore(folder, _stub_identity())
            Scorer(
                free,
                context=decoder.config.context,
                batch_tokens=real.batch_tokens,
                store=store,
            ).sums(texts)

        full = next(folders)
        score(full)
        timed = interleaved(
            {
                "scoring": lambda: real.sums(texts),
                "nothing": lambda: score(None),
                "write": lambda: score(next(folders)),
                "read": lambda: score(full),
            },
            rounds,
        )
    write = timed.median("write") - timed.median("nothing")
    return {
        "n_parameters": n_parameters(decoder),
        "n_batches": n_batches,
        "seconds": timed.seconds,
        "write_us": 1e6 * write / n_batches,
        "read_us": 1e6 * timed.median("read") / n_batches,
        "batch_us": 1e6 * timed.median("scoring") / n_batches,
        "share": write / timed.median("scoring"),
    }


def _stub_identity() -> ScoreIdentity:
    """Identity of scores that stand for nothing."""
    return ScoreIdentity(
        model="",
        prefix_id=None,
        context=1024,
        moments=False,
        dtype="float32",
        precision="highest",
        attention="blocks",
        kernel=0,
        code="",
        platform="cpu",
        device=cpu_name(),
        n_devices=1,
        n_model=1,
        cpu_threads=1,
        compiler="",
    )


def measure_compiled(_rounds: int, *, tiny: bool) -> dict:
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

    For its own process, which has compiled nothing.
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
