"""How fast are the kernel and the re-draws, beside what people use today?

Question: tokens a second of the kernel against transformers' torch model scored one
sequence at a time with full logits, on the same 124 M weights; re-draws a second
against `scipy.stats.permutation_test`; and how much the store of scores adds to the
scoring time of a 30 M model. Everything is measured in one run, side by side,
on one core, so that ratios can be trusted where seconds cannot.
Command: `python -m eval.speed`. Hardware: one CPU core, about 5 minutes, 3 GB.
Needs torch (`pip install -e .[test]`). Headline: LOG.md.
"""

import ctypes
import dataclasses
import gc
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from jaxcontam.cli import parse, run_command
from jaxcontam.errors import InputError
from jaxcontam.report.document import make_folder
from jaxcontam.scoring.identity import cpu_name

_SEQUENCES, _TOKENS = 8, 512
_PEAK_SHAPE = (4096, 768, 3072)
# Fifty strata of 20 columns, the size of the published sharded test with fewer orders.
_STRATA, _COLUMNS, _SCIPY_DRAWS = 50, 20, 2000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Measure kernel, re-draws and the store of scores, on one core."""

    rounds: int = 5
    """Interleaved rounds."""
    tiny: bool = False
    """A small model: a pulse run."""
    out: Path = Path("runs/speed")
    """Folder for speed.json."""

    def run(self) -> dict:
        """Measure, print, write; returns the measurements."""
        make_folder(self.out)
        _pin_to_one_core()
        console = Console(highlight=False)
        measured = {
            "cpu": cpu_name(),
            "kernel": measure_kernel(self.rounds, tiny=self.tiny),
            "redraws": measure_redraws(self.rounds),
            "store": measure_store(self.rounds, tiny=self.tiny),
        }
        (self.out / "speed.json").write_text(json.dumps(measured, indent=1) + "\n")
        _print(measured, console)
        return measured


def measure_kernel(rounds: int, *, tiny: bool) -> dict:
    """Tokens a second of torch, one sequence a call, and of the kernel; interleaved.

    Returns:
        Rates of every round in tokens a second, the median of the rounds' ratios,
        the largest difference of a log-probability, growth of the peak resident
        memory while the kernel first scores, in MB, and the run's own sgemm peaks.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as e:
        raise InputError(
            "torch is not installed", hint="pip install -e '.[test]'"
        ) from e
    torch.set_num_threads(1)
    from flax import nnx

    from jaxcontam.models.checkpoint import save_checkpoint
    from jaxcontam.models.decoder import Decoder
    from jaxcontam.scoring.local import local_scorer

    config = _gpt2(tiny)
    ids = np.random.default_rng(0).integers(
        config.vocab_size, size=(_SEQUENCES, _TOKENS), dtype=np.int32
    )
    decoder = Decoder(config, rngs=nnx.Rngs(0))
    scorer = local_scorer(decoder)
    with tempfile.TemporaryDirectory() as directory:
        save_checkpoint(decoder, None, Path(directory), model_type="gpt2")
        with multiprocessing.get_context("spawn").Pool(1) as fresh_process:
            growth = fresh_process.apply(memory_growth_mb, (directory, ids))
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model.eval()
    ours = scorer.tokens(list(ids))

    def published_way() -> list[np.ndarray]:
        scores = []
        with torch.no_grad():
            for row in ids:
                tokens = torch.from_numpy(row.astype(np.int64))[None]
                logprobs = torch.log_softmax(model(tokens).logits[0, :-1], dim=-1)
                picked = logprobs.gather(1, tokens[0, 1:, None])[:, 0]
                scores.append(picked.numpy())
        return scores

    theirs = published_way()
    difference = max(
        float(np.abs(a[0] - b).max()) for a, b in zip(ours, theirs, strict=True)
    )
    timed = _interleaved(
        {"torch": published_way, "jaxcontam": lambda: scorer.tokens(list(ids))}, rounds
    )
    n_targets = _SEQUENCES * (_TOKENS - 1)
    rates = {name: [n_targets / s for s in times] for name, times in timed.items()}
    return {
        "n_parameters": sum(p.numel() for p in model.parameters()),
        "shape": [_SEQUENCES, _TOKENS],
        "tokens_per_second": rates,
        "ratio": _median_ratio(timed["torch"], timed["jaxcontam"]),
        "largest_difference": difference,
        "memory_growth_mb": growth,
        "sgemm_gflops": _sgemm_peaks(),
    }


def memory_growth_mb(directory: str, ids: np.ndarray) -> float:
    """Growth of resident memory, at its peak, while a loaded model first scores `ids`.

    Compilation included. To be called in a process of its own, whose peak is not that
    of something else.
    """
    from jaxcontam.models.checkpoint import load_decoder
    from jaxcontam.scoring.local import local_scorer

    scorer = local_scorer(load_decoder(Path(directory)))
    # Loading had a peak of its own and leaves garbage. Return it and make the kernel
    # forget the peak (5): the growth is the scorer's alone.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory_mb("VmRSS")
    scorer.tokens(list(ids))
    return _memory_mb("VmHWM") - before


def measure_redraws(rounds: int) -> dict:
    """Re-draws a second of the randomisation engine and of SciPy; interleaved."""
    from scipy.stats import permutation_test

    from jaxcontam.stats.randomisation import N_MONTE_CARLO, redrawn_sums

    values = np.random.default_rng(0).normal(size=(_STRATA, _COLUMNS))
    columns = tuple(values.T)

    def scipy_way() -> None:
        permutation_test(
            columns,
            lambda *data, axis: data[0].sum(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=_SCIPY_DRAWS,
            alternative="greater",
        )

    timed = _interleaved(
        {
            "scipy": scipy_way,
            "jaxcontam": lambda: redrawn_sums(values, n_draws=N_MONTE_CARLO, seed=0),
        },
        rounds,
    )
    draws = {"scipy": _SCIPY_DRAWS, "jaxcontam": N_MONTE_CARLO}
    per_draw = {name: [s / draws[name] for s in times] for name, times in timed.items()}
    return {
        "shape": [_STRATA, _COLUMNS],
        "redraws_per_second": {
            name: [1 / s for s in times] for name, times in per_draw.items()
        },
        "ratio": _median_ratio(per_draw["scipy"], per_draw["jaxcontam"]),
    }


def measure_store(rounds: int, *, tiny: bool) -> dict:
    """What keeping and finding scores adds to scoring them, for texts of all lengths.

    The store is timed under a forward function that costs nothing, since its share of
    the real one's time is smaller than that time's noise.

    Returns:
        Seconds of each way in each round, microseconds a batch, and the share of the
        scoring time that a look for missing rows and their write take together.
    """
    import jax
    from flax import nnx

    from jaxcontam.models.decoder import Decoder
    from jaxcontam.scoring.local import local_scorer
    from jaxcontam.scoring.scorer import Scorer
    from jaxcontam.scoring.store import ScoreStore

    config = _thirty_million(tiny)
    decoder = Decoder(config, rngs=nnx.Rngs(0))
    real, rng = local_scorer(decoder), np.random.default_rng(0)
    texts = [
        rng.integers(config.vocab_size, size=n, dtype=np.int32)
        for n in rng.integers(16, 513, 16 if tiny else 64)
    ]
    n_batches = len(real.plan(texts)[1])

    def free(inputs_BS: np.ndarray, targets_BS: np.ndarray) -> list[np.ndarray]:
        return [np.zeros(inputs_BS.shape, np.float32)]

    with tempfile.TemporaryDirectory() as directory:
        folders = (Path(directory) / str(i) for i in itertools.count())

        def score(folder: Path | None) -> None:
            store = None if folder is None else ScoreStore(folder, _stub_identity())
            Scorer(
                free,
                context=config.context,
                batch_tokens=real.batch_tokens,
                store=store,
            ).sums(texts)

        full = next(folders)
        score(full)
        timed = _interleaved(
            {
                "scoring": lambda: real.sums(texts),
                "nothing": lambda: score(None),
                "write": lambda: score(next(folders)),
                "read": lambda: score(full),
            },
            rounds,
        )
    median = {name: statistics.median(times) for name, times in timed.items()}
    write = median["write"] - median["nothing"]
    return {
        "n_parameters": sum(x.size for x in jax.tree.leaves(nnx.state(decoder))),
        "n_batches": n_batches,
        "seconds": timed,
        "write_us": 1e6 * write / n_batches,
        "read_us": 1e6 * median["read"] / n_batches,
        "batch_us": 1e6 * median["scoring"] / n_batches,
        "share": write / median["scoring"],
    }


def _thirty_million(tiny: bool):
    """30.6 M parameters in GPT-2's shape, or few for a pulse run."""
    from jaxcontam.models.config import gpt2_shape

    D, L, H = (64, 2, 4) if tiny else (512, 7, 8)
    return gpt2_shape(vocab_size=16384, d_model=D, n_layers=L, n_heads=H, context=512)


def _stub_identity():
    """Of scores that stand for nothing."""
    from jaxcontam.scoring.identity import ScoreIdentity

    return ScoreIdentity(
        model="",
        prefix_id=None,
        context=512,
        moments=False,
        dtype="float32",
        precision="highest",
        kernel=0,
        platform="cpu",
        device=cpu_name(),
        n_devices=1,
        cpu_threads=1,
        compiler="",
    )


def _gpt2(tiny: bool):
    """GPT-2's smallest shape, or one for a pulse run."""
    from jaxcontam.models.config import gpt2_shape

    D, L, H = (64, 2, 4) if tiny else (768, 12, 12)
    return gpt2_shape(vocab_size=50257, d_model=D, n_layers=L, n_heads=H, context=1024)


def _interleaved(
    ways: dict[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each way in each round, after one warm-up."""
    for way in ways.values():
        way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def _median_ratio(slow: list[float], fast: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def _sgemm_peaks() -> dict[str, float]:
    """Best of 5 float32 products in GFLOP/s, by library."""
    import jax
    import jax.numpy as jnp
    import torch

    m, k, n = _PEAK_SHAPE
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    torch_a, torch_b = torch.from_numpy(a), torch.from_numpy(b)
    jax_a, jax_b = jnp.asarray(a), jnp.asarray(b)
    product = jax.jit(jnp.matmul)
    ways: dict[str, Callable[[], object]] = {
        "jax": lambda: product(jax_a, jax_b).block_until_ready(),
        "torch": lambda: torch_a @ torch_b,
    }
    timed = _interleaved(ways, 5)
    return {name: 2e-9 * m * k * n / min(times) for name, times in timed.items()}


def _pin_to_one_core() -> None:
    """Both libraries size their thread pools when they are imported."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _memory_mb(field: str) -> float:
    """A field of /proc/self/status, such as VmRSS (now) or VmHWM (peak)."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1.024e-3


def _print(measured: dict, console: Console) -> None:
    kernel, redraws, store = (measured[k] for k in ("kernel", "redraws", "store"))
    peaks = kernel["sgemm_gflops"]
    console.print(
        f"{measured['cpu']}, one core; sgemm peak of this run: "
        f"jax {peaks['jax']:.0f}, torch {peaks['torch']:.0f} GFLOP/s\n"
    )
    rows = (
        (
            f"{kernel['n_parameters'] / 1e6:.0f} M tokens/s",
            kernel["tokens_per_second"],
        ),
        ("re-draws/s", redraws["redraws_per_second"]),
    )
    n_rounds = len(kernel["tokens_per_second"]["torch"])
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("what", "way", *(f"round {i + 1}" for i in range(n_rounds))):
        table.add_column(
            column, justify="left" if column in ("what", "way") else "right"
        )
    for what, rates in rows:
        for way, values in rates.items():
            table.add_row(what, way, *(_rate_text(value) for value in values))
    console.print(table)
    console.print(
        f"\nkernel: {kernel['ratio']:.2f} x torch one by one (median of rounds), "
        f"largest difference {kernel['largest_difference']:.1e} nats, memory growth "
        f"{kernel['memory_growth_mb']:.0f} MB\n"
        f"re-draws: {redraws['ratio']:.0f} x SciPy (median of rounds)\n"
        f"store: {store['write_us']:.0f} us a batch to look for rows and write them, "
        f"{store['share']:.2%} of the {store['batch_us'] / 1000:.0f} ms that a "
        f"{store['n_parameters'] / 1e6:.0f} M model takes for it; "
        f"{store['read_us']:.0f} us to read them again"
    )


def _rate_text(rate: float) -> str:
    return f"{rate / 1e6:.1f} M" if rate >= 1e6 else f"{rate:,.0f}"


def main() -> int:
    """Command line of `python -m eval.speed`."""
    return run_command(
        lambda: parse(Speed, sys.argv[1:], prog="python -m eval.speed").run(),
        name="eval.speed",
    )


if __name__ == "__main__":
    sys.exit(main())
