"""Detection against the size of the model and the length of the text.

Models of several sizes are trained on the same stream; each text is scored whole, and
cut to its first words, as the lengths of WikiMIA are.
"""

from typing import Any

from eval.membership.bench import Bench, resized, score_groups, score_methods
from eval.membership.cells import Cell, Stratum, Trend, cell, trend
from eval.membership.downstream import Found, model_facts
from eval.membership.models import planted
from eval.membership.texts import drawn, pieces, without
from jaxcontam.data.chunks import cut_words


def sizes_study(bench: Bench) -> Found:
    """Every size with every length."""
    scale = bench.scale
    strata: dict[tuple[str, int, int], list[Stratum]] = {}
    sizes: list[int] = []
    facts: dict[str, Any] = {}
    for width, layers in scale.widths:
        preset = resized(scale.preset, width, layers, rate=scale.size_rate)
        for seed in bench.seeds:
            texts = drawn(
                pieces(bench.pool.documents, scale.lengths[-1]),
                2 * scale.n_long,
                seed=seed,
                what=f"texts of {scale.lengths[-1]} words",
            )
            seen, unseen = texts[: scale.n_long], texts[scale.n_long :]
            model = bench.train(
                f"size-{seed}-{width}-{layers}",
                without(bench.pool.documents, texts, scale.lengths[-1]),
                [planted("members", seen, scale.long_copies)],
                preset,
                seed,
                tokens=scale.size_tokens,
            )
            ready = bench.ready(model)
            size = model.checkpoint.n_parameters
            facts[f"{size:,} weights"] = model_facts(model)
            sizes += [size] if size not in sizes else []
            groups = {
                f"{words} {word}": [cut_words(text, words) for text in side]
                for words in scale.lengths
                for word, side in (("seen", seen), ("unseen", unseen))
            }
            scores = score_groups(ready, groups, score_methods())
            for method, of_groups in scores.items():
                for words in scale.lengths:
                    strata.setdefault((method, size, words), []).append(
                        Stratum(
                            of_groups[f"{words} seen"], of_groups[f"{words} unseen"]
                        )
                    )
    methods = list(dict.fromkeys(method for method, _, _ in strata))
    small, large = sizes[0], sizes[-1]
    short, long = scale.lengths[0], scale.lengths[-1]
    cells: list[Cell] = []
    trends: list[Trend] = []
    for method in methods:
        for size in sizes:
            cells += [
                cell(
                    strata[method, size, words],
                    study="sizes",
                    setting=f"{size / 1e6:.2f} M weights, {words} words",
                    x=float(size),
                    method=method,
                    task=f"{words} words",
                )
                for words in scale.lengths
            ]
        trends += [
            trend(
                strata[method, a, c],
                strata[method, b, d],
                settings=settings,
                study=study,
                method=method,
                paper="rises",
                paired=True,
            )
            for study, a, b, c, d, settings in (
                ("size", small, large, long, long, (f"{small:,}", f"{large:,}")),
                ("length", large, large, short, long, (f"{short}", f"{long}")),
            )
        ]
    return Found(cells=tuple(cells), trends=tuple(trends), facts=facts)
