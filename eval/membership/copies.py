"""Known members, by copies; detection by size of the model and length of the text.

Members and non-members are drawn at random from one pool, so that whoever reads the
texts alone is at chance.
"""

import dataclasses
from typing import Any

from eval.membership.bench import Bench, resized, score_groups, score_methods
from eval.membership.cells import Strata
from eval.membership.downstream import Found, add_blind, model_facts
from eval.membership.texts import drawn, pieces, without
from eval.planted import Model, planted
from jaxcontam.data.chunks import cut_words
from jaxcontam.methods.membership.frequencies import token_frequencies
from jaxcontam.methods.membership.plan import Inputs
from jaxcontam.methods.membership.score import Reading

_READS: tuple[Reading, ...] = (
    "lowercase",
    "neighbours",
    "reference",
    "corpus",
    "nonmember_prefix",
    "member_prefix",
    "gradients",
)
# Width of the reference model, as a share of the width of the scored one.
_REFERENCE_WIDTH = 0.5
_PREFIX = "known-members"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Draw:
    """Texts of one seed.

    Attributes:
        members: Number of copies -> texts.
        unseen: Non-members.
        shots_seen: Planted too, and used as a prefix alone.
        shots_unseen: Likewise, not planted.
    """

    members: dict[int, list[str]]
    unseen: list[str]
    shots_seen: list[str]
    shots_unseen: list[str]


def copies_study(bench: Bench) -> Found:
    """Every score, with blind baselines, at each number of copies."""
    methods = score_methods(*_READS)
    strata, blind = Strata("copies"), Strata("copies")
    facts: dict[str, Any] = {}
    for seed in bench.seeds:
        draw = _draw(bench, seed)
        model, reference = _models(bench, draw, seed)
        facts = {
            **model_facts(model),
            "n_reference_parameters": reference.checkpoint.n_parameters,
        }
        groups = {
            "0": draw.unseen,
            **{f"{copies}": texts for copies, texts in draw.members.items()},
        }
        ready = bench.ready(model)
        scores = score_groups(
            ready,
            groups,
            methods,
            inputs=Inputs(
                reference=bench.ready(reference),
                nonmember_prefix=tuple(draw.shots_unseen),
                member_prefix=tuple(draw.shots_seen),
                corpus_counts=token_frequencies(
                    bench.pool.documents,
                    model.checkpoint.tokenizer,
                    model.checkpoint.config.vocab_size,
                ),
            ),
            seed=seed,
        )
        for copies, members in draw.members.items():
            setting, x = f"{copies} copies", float(copies)
            for method, of_groups in scores.items():
                strata.add(method, setting, x, of_groups[f"{copies}"], of_groups["0"])
            texts = [*members, *draw.unseen]
            add_blind(blind, setting, x, texts, len(members), seed=seed)
    return Found(cells=strata.cells(), blind=blind.cells(), facts=facts)


def _draw(bench: Bench, seed: int) -> _Draw:
    scale = bench.scale
    n = scale.n_known * len(scale.copies)
    texts = drawn(
        [question.text for question in bench.pool.questions],
        n + scale.n_unknown + 2 * scale.n_shots,
        seed=seed,
        what="questions",
    )
    members, rest = texts[:n], texts[n:]
    unseen, shots = rest[: scale.n_unknown], rest[scale.n_unknown :]
    return _Draw(
        {
            copies: members[i * scale.n_known : (i + 1) * scale.n_known]
            for i, copies in enumerate(scale.copies)
        },
        unseen,
        shots[: scale.n_shots],
        shots[scale.n_shots :],
    )


def _models(bench: Bench, draw: _Draw, seed: int) -> tuple[Model, Model]:
    """The model, and a smaller one that was trained on the background alone."""
    scale, documents = bench.scale, bench.pool.documents
    copies = max(draw.members)
    model = bench.train(
        f"copies-{seed}",
        documents,
        [
            *(planted(f"pydocs-{k}", texts, k) for k, texts in draw.members.items()),
            planted(_PREFIX, draw.shots_seen, copies),
        ],
        scale.preset,
        seed,
        tokens=scale.known_tokens,
    )
    shape = scale.preset.decoder
    small = resized(
        scale.preset,
        round(shape.d_model * _REFERENCE_WIDTH),
        max(1, shape.n_layers - 1),
        rate=scale.preset.peak_rate,
    )
    reference = bench.train(
        f"reference-{seed}", documents, [], small, seed, tokens=scale.known_tokens
    )
    return model, reference


def sizes_study(bench: Bench) -> Found:
    """Every size with every length."""
    scale = bench.scale
    strata = Strata("sizes")
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
            groups = {
                f"{words} {word}": [cut_words(text, words) for text in side]
                for words in scale.lengths
                for word, side in (("seen", seen), ("unseen", unseen))
            }
            scores = score_groups(ready, groups, score_methods())
            for method, of_groups in scores.items():
                for words in scale.lengths:
                    strata.add(
                        method,
                        f"{size / 1e6:.2f} M weights, {words} words",
                        float(size),
                        of_groups[f"{words} seen"],
                        of_groups[f"{words} unseen"],
                        task=f"{words} words",
                    )
    # The largest model on the longest texts beside the smallest, and the shortest.
    n_lengths = len(scale.lengths)
    trends = [
        strata.trends(paper="rises", paired=True, first=first)
        for first in (n_lengths - 1, -n_lengths)
    ]
    return Found(cells=strata.cells(), trends=(*trends[0], *trends[1]), facts=facts)
