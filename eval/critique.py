"""Does `self_critique` find prompts whose answers were rewarded?

Question: small models learn tasks that have four ways to an answer, and to go another
way when asked to. Then answers to some prompts, of their own writing, are rewarded by
policy gradients where they end in the right word, which nothing in a prompt tells. Does
the score rank these prompts above others of the same kind, and how often above if
nothing was rewarded? Beside it `loss` and `min_k` of the prompts.
Command: `python -m eval.critique`. Hardware: 2 CPU cores, some minutes a model; a
killed run goes on. Headline: docs/results/critique.md.

Dimension key
    B  answers of a step, T  ids of a prompt with its answer
"""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from eval.intervals import Share
from eval.planted import in_rows
from eval.study import (
    Clock,
    Grid,
    Records,
    StudyFlags,
    finish_study,
    grouped,
    run_study,
    say,
)
from jaxcontam.analyses.prompted_model import MemoryJournal
from jaxcontam.commands.flags import check_positive, flags_of
from jaxcontam.methods import SCORES
from jaxcontam.methods.membership.critique import CRITIQUE
from jaxcontam.methods.membership.plan import score_texts
from jaxcontam.methods.membership.text_model import text_model
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.generation import Sampling, continuations
from jaxcontam.scoring.completions import LocalCompleter, continuation_text
from jaxcontam.scoring.kernel import target_scores
from jaxcontam.stats.relabelling import auc_p_values
from jaxcontam.stats.roc import auc_delong
from train.population_forms import train_scanned
from train.population_plan import Design, plan_model, texts_in_memory

_NAMES, _WAYS, _STEPS, _FORMS, _RESULTS = 40, 4, 5, 3, 6
_SAMPLES, _PROMPTS, _NEW, _ROW = 8, 8, 24, 64
_RATE, _LEVEL = 1e-3, 0.05
_SCORES = ("self_critique", "loss", "min_k")
_KINDS = {
    "clean": "unseen prompts beside others",
    "before": "the same before any reward",
    "rewarded": "rewarded prompts beside unseen ones",
}

Rng = np.random.Generator


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large models, sets and training are."""

    preset: str
    n_documents: int
    n_steps: int
    n_updates: int
    n_rewarded: int
    n_set: int
    n_clean: int


FULL = Scale(
    preset="0.16m",
    n_documents=12000,
    n_steps=1000,
    n_updates=300,
    n_rewarded=40,
    n_set=30,
    n_clean=25,
)
TINY = Scale(
    preset="pulse",
    n_documents=800,
    n_steps=30,
    n_updates=2,
    n_rewarded=8,
    n_set=5,
    n_clean=2,
)


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """Words of answers, prompts of no document, and documents."""

    results: tuple[str, ...]
    prompts: tuple[str, ...]
    documents: tuple[str, ...]


def make_world(rng: Rng, n_documents: int, n_prompts: int) -> World:
    """Draw words; half of the documents answer twice, the second time another way."""
    letters = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = [a + b for a, b in itertools.product(letters, repeat=2)]
    n_words = _WAYS * (1 + _STEPS * _FORMS)
    drawn = rng.permutation(words)[: _NAMES + n_words + _RESULTS].tolist()
    names, results = drawn[:_NAMES], tuple(drawn[-_RESULTS:])
    ways = np.reshape(drawn[_NAMES : _NAMES + n_words], (_WAYS, -1))
    # Some places of a way are nearly sure, and some are open.
    odds = rng.dirichlet([0.5] * _FORMS, (_WAYS, _STEPS))

    def answer(way: int) -> str:
        steps = ways[way, 1:].reshape(_STEPS, _FORMS)
        taken = [rng.choice(steps[i], p=odds[way, i]) for i in range(_STEPS)]
        return f" {ways[way, 0]} {' '.join(taken)} so {rng.choice(results)}"

    pairs = rng.permutation([*itertools.permutations(names, 2)]).tolist()
    tasks = [f"Task: {a} {b}. Answer:" for a, b in pairs]
    documents = []
    for i in range(n_documents):
        prompt = tasks[n_prompts + i % (len(tasks) - n_prompts)]
        first, second = rng.permutation(_WAYS)[:2].tolist()
        if i % 2:
            prompt = CRITIQUE.format(prompt, answer(second))
        documents.append(prompt + answer(first))
    return World(results, tuple(tasks[:n_prompts]), tuple(documents))


def rewarded(
    checkpoint: Checkpoint, prompts: Sequence[str], right: Sequence[str], n: int
) -> Checkpoint:
    """The model after `n` steps of REINFORCE, the mean of a prompt as its baseline.

    Args:
        checkpoint: The model.
        prompts: Texts.
        right: The last word of an answer that is rewarded, one a prompt.
        n: Steps.
    """
    graphdef, params = nnx.split(checkpoint.decoder)
    optimiser = optax.adam(_RATE)
    memory = optimiser.init(params)
    step = _compiled_step(graphdef, optimiser)
    asked = LocalCompleter(checkpoint=checkpoint, journal=MemoryJournal())
    ids = [asked.ids(prompt) for prompt in prompts]
    for number in range(n):
        chosen = [(number * _PROMPTS + i) % len(ids) for i in range(_PROMPTS)]
        sampling = Sampling(
            n_samples=_SAMPLES,
            new_tokens=_NEW,
            stop_ids=checkpoint.stop_ids,
            seed=number,
        )
        drawn = continuations(
            nnx.merge(graphdef, params), [ids[i] for i in chosen], sampling
        )
        rows_BT = np.zeros((_PROMPTS * _SAMPLES, _ROW), np.int32)
        weights_BT = np.zeros(rows_BT.shape, np.float32)
        for place, samples in drawn:
            prompt, word = ids[chosen[place]], right[chosen[place]]
            texts = [
                continuation_text(checkpoint.tokenizer, prompt.tolist(), one.ids)
                for one in samples
            ]
            won = np.array([text.split()[-1:] == [word] for text in texts], float)
            for i, one in enumerate(samples):
                end = [] if one.stop_id is None else [one.stop_id]
                row = np.concatenate([prompt, one.ids, end])[:_ROW]
                at = place * _SAMPLES + i
                rows_BT[at, : len(row)] = row
                weights_BT[at, len(prompt) : len(row)] = won[i] - won.mean()
        params, memory = step(params, memory, rows_BT, weights_BT)
    decoder = nnx.merge(graphdef, params)
    return dataclasses.replace(
        checkpoint, decoder=decoder, fingerprint=f"{checkpoint.fingerprint}-{n}"
    )


@functools.lru_cache(maxsize=1)
def _compiled_step(graphdef: nnx.GraphDef, optimiser: optax.GradientTransformation):
    def loss(params: nnx.State, rows_BT: jax.Array, weights_BT: jax.Array) -> jax.Array:
        decoder: Decoder = nnx.merge(graphdef, params)
        hidden_BSD = decoder(rows_BT[:, :-1])
        hidden_ND = hidden_BSD.reshape(-1, hidden_BSD.shape[-1])
        found = target_scores(
            hidden_ND, decoder.head_VD, rows_BT[:, 1:].reshape(-1), moments=False
        )
        return -(weights_BT[:, 1:].reshape(-1) * found.logprobs).sum() / len(rows_BT)

    @jax.jit
    def step(params, memory, rows_BT, weights_BT):
        gradients = jax.grad(loss)(params, rows_BT, jnp.asarray(weights_BT))
        updates, memory = optimiser.update(gradients, memory, params)
        return optax.apply_updates(params, updates), memory

    return step


def one_model(scale: Scale, seed: int) -> dict[str, Any]:
    """Train, reward, score before and after; p-values of sets of prompts."""
    rng = np.random.default_rng([seed, 51])
    n, n_unseen = scale.n_rewarded, 4 * scale.n_set
    world = make_world(rng, scale.n_documents, n + n_unseen)
    design = Design(
        name="critique",
        preset=in_rows(scale.preset, 128, batch_rows=4),
        n_examples=1,
        copies=(0,),
        n_steps=scale.n_steps,
        max_example_tokens=40,
    )
    texts = texts_in_memory(world.documents, world.prompts, design)
    rows_RT = plan_model(design, texts, seed=seed).rows
    decoder, losses = train_scanned(design.preset, rows_RT, seed=seed)
    base = Checkpoint(
        name=f"critique-{seed}",
        decoder=decoder,
        tokenizer=texts.tokenizer,
        prefix_id=texts.prefix_id,
        fingerprint=f"critique-{seed}",
        stop_ids=(texts.prefix_id,) if texts.prefix_id is not None else (),
    )
    right = rng.choice(world.results, len(world.prompts)).tolist()
    tuned = rewarded(base, world.prompts[:n], right[:n], scale.n_updates)
    fields: dict[str, Any] = {"loss": float(losses[-50:].mean()), "cases": []}
    for name, checkpoint in (("before", base), ("after", tuned)):
        found = score_texts(
            world.prompts,
            [SCORES[score] for score in _SCORES],
            text_model(checkpoint, store=None),
        ).values
        fields[name] = _facts(checkpoint, world.prompts, right, n)
        kinds = ("before",) if name == "before" else ("clean", "rewarded")
        for kind in kinds:
            n_cases = (
                scale.n_clean if kind != "rewarded" else max(1, scale.n_clean // 5)
            )
            fields["cases"] += _cases(kind, found, n, scale.n_set, n_cases, rng)
    return fields


def _facts(
    checkpoint: Checkpoint, prompts: Sequence[str], right: Sequence[str], n: int
) -> dict[str, float]:
    """Shares of greedy answers that are right, and of second ones that differ."""
    completer = LocalCompleter(checkpoint=checkpoint, journal=MemoryJournal())
    first = [c.text for (c,) in completer.complete(prompts, max_tokens=_NEW)]
    again = [CRITIQUE.format(*pair) for pair in zip(prompts, first, strict=True)]
    second = [c.text for (c,) in completer.complete(again, max_tokens=_NEW)]
    hit = np.array(
        [text.split()[-1:] == [w] for text, w in zip(first, right, strict=True)]
    )
    other = np.array(
        [a.split()[:1] != b.split()[:1] for a, b in zip(first, second, strict=True)]
    )
    return {
        "right, rewarded": float(hit[:n].mean()),
        "right, unseen": float(hit[n:].mean()),
        "another way, rewarded": float(other[:n].mean()),
        "another way, unseen": float(other[n:].mean()),
    }


def _cases(
    kind: str, scores_NM: np.ndarray, n: int, n_set: int, n_cases: int, rng: Rng
) -> Iterator[dict[str, Any]]:
    """Two drawn sets of prompts a case: AUC and one-sided p of each score."""
    for _ in range(n_cases):
        unseen = n + rng.permutation(len(scores_NM) - n)
        own = rng.permutation(n)[:n_set] if kind == "rewarded" else unseen[n_set:]
        both = scores_NM[np.concatenate([own[:n_set], unseen[:n_set]])]
        is_own = np.arange(len(both)) < n_set
        p_values = auc_p_values(both, is_own, seed=int(rng.integers(2**31)))
        for i, score in enumerate(_SCORES):
            auc, _ = auc_delong(both[is_own, i], both[~is_own, i])
            p_value = float(p_values[i])
            yield {"kind": kind, "score": score, "auc": auc, "p_value": p_value}


def grids_of(models: Sequence[dict[str, Any]]) -> list[Grid]:
    """Rates of p at most `_LEVEL` with the mean AUC, and what models do."""
    cases = [case for model in models for case in model["cases"]]
    words = {}
    for (kind, score), own in grouped(cases, lambda c: (c["kind"], c["score"])).items():
        n_found = sum(case["p_value"] <= _LEVEL for case in own)
        share = Share.counted(n_found, len(own))
        mean = np.mean([case["auc"] for case in own])
        words[_KINDS[kind], score] = (
            f"{n_found} of {len(own)} ({share.low:.1%} to {share.high:.1%}), {mean:.2f}"
        )
    facts = {
        (fact, when): f"{np.mean([model[when][fact] for model in models]):.2f}"
        for fact in models[0]["before"]
        for when in ("before", "after")
    }
    title = f"Sets of prompts with p at most {_LEVEL} (Wilson's 95 %), and mean AUC"
    return [
        Grid.crossed(title, "sets", words),
        Grid.crossed("Shares of prompts, mean over models", "", facts),
    ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Critique(StudyFlags):
    """Reward answers to some prompts, and look for these prompts."""

    models: int = 8
    """Models, each with a world, prompts and rewards of its own."""
    out: Path = Path("runs/critique")
    """Folder for a record of each model and the tables; finished models stay."""
    any_code: bool = False
    """Take finished models that other code made, too."""

    def __post_init__(self) -> None:
        StudyFlags.__post_init__(self)
        check_positive(self, "models")

    def run(self) -> dict[str, Any]:
        """Make what is missing, print the tables; returns the numbers."""
        clock, scale = Clock.start(), TINY if self.tiny else FULL
        kept = Records(self.out / "models", any_code=self.any_code)
        models = []
        for seed in range(self.seed, self.seed + self.models):
            inputs = dataclasses.asdict(scale), seed
            if (fields := kept.read(str(seed), *inputs)) is None:
                own = Clock.start()
                fields = one_model(scale, seed)
                fields["cpu_seconds"] = own.cost()["cpu_seconds"]
                kept.write(str(seed), fields, *inputs)
                say(f"model {seed}: loss {fields['loss']:.2f}, {fields['after']}")
            models.append(fields)
        return finish_study(
            "critique",
            flags_of(self),
            clock=clock,
            out=self.out,
            numbers={"models": models},
            grids=grids_of(models),
            earlier_seconds=kept.earlier_seconds,
        )


if __name__ == "__main__":
    sys.exit(run_study("critique", Critique, trains=True, compiles=True))
