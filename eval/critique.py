"""Does `self_critique` find prompts whose answers were rewarded?

Question: small models learn tasks that have four ways to an answer, and to go another
way when they are asked to. Then their own answers to some prompts are rewarded by
policy gradients where they go the one way that was drawn for the prompt. Does the score
rank these prompts above others of the kind, and how often where nothing was rewarded?
Beside it `loss` and `min_k` of the prompts.
Command: `python -m eval.critique`. Hardware: 2 CPU cores, a minute a model; a killed
run goes on. Headline: docs/results/critique.md.
"""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
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
)
from jaxcontam.analyses.prompted_model import MemoryJournal
from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.methods import SCORES
from jaxcontam.methods.membership.critique import CRITIQUE
from jaxcontam.methods.membership.plan import score_texts
from jaxcontam.methods.membership.text_model import text_model
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.generation import Sampling, continuations
from jaxcontam.scoring.completions import LocalCompleter
from jaxcontam.scoring.kernel import target_scores
from jaxcontam.stats.relabelling import auc_p_values
from jaxcontam.stats.roc import auc_delong
from train.population_device import train_scanned
from train.tokenizer import prefix_id, train_tokenizer

_WAYS, _STEPS, _FORMS = 4, 5, 3
# Answers to a prompt and prompts of an update, ids of an answer and of a row.
_SAMPLES, _PROMPTS, _NEW, _ROW = 8, 8, 16, 64
_RATE, _LEVEL = 6e-4, 0.05
_SCORES = ("self_critique", "loss", "min_k")

Scale = dict[str, Any]
FULL: Scale = {"preset": "0.16m", "n_steps": 700, "n_updates": 120, "n": 24}
FULL |= {"n_set": 20, "n_clean": 25}
TINY: Scale = {"preset": "pulse", "n_steps": 30, "n_updates": 2, "n": 6}
TINY |= {"n_set": 5, "n_clean": 2}
Rng = np.random.Generator


def make_world(rng: Rng, n: int) -> tuple[list[str], list[str], Iterator[str]]:
    """First words of the ways, `n` prompts, and documents of these without end.

    One of three answers a second time, another way, and as `self_critique` asks for it.
    """
    letters = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = rng.permutation([a + b for a, b in itertools.product(letters, repeat=2)])
    prompts = [f"Task: {name}. Answer:\n" for name in words[:n]]
    ways = words[-_WAYS:].tolist()
    steps = words[n:][: _WAYS * _STEPS * _FORMS].reshape(_WAYS, _STEPS, _FORMS)
    # Some places of a way are nearly sure, and some are open; so are ways of a prompt.
    odds = rng.dirichlet([0.5] * _FORMS, (_WAYS, _STEPS))
    liked = rng.dirichlet([1.0] * _WAYS, n)

    def answer(way: int) -> str:
        both = zip(steps[way], odds[way], strict=True)
        return " ".join(["", ways[way], *(rng.choice(s, p=o) for s, o in both)])

    def documents() -> Iterator[str]:
        for i in itertools.count():
            name = int(rng.integers(n))
            first, other = rng.choice(_WAYS, 2, replace=False, p=liked[name])
            prompt = prompts[name]
            asked = prompt if i % 3 else CRITIQUE.format(prompt, answer(other))
            yield asked + answer(first)

    return ways, prompts, documents()


def rewarded(
    checkpoint: Checkpoint, prompts: Sequence[str], right: Sequence[str], n: int
) -> Checkpoint:
    """The model after `n` updates by REINFORCE, a prompt's mean reward the baseline.

    Args:
        checkpoint: The model.
        prompts: Texts.
        right: First word of an answer that is rewarded, one a prompt.
        n: Updates.
    """
    graphdef, params = nnx.split(checkpoint.decoder)
    optimiser = optax.adam(_RATE)
    memory, update = optimiser.init(params), _update(graphdef, optimiser)
    completer = LocalCompleter(checkpoint=checkpoint, journal=MemoryJournal())
    asked = [completer.ids(prompt) for prompt in prompts]
    for seed in range(n):
        chosen = [i % len(asked) for i in range(seed * _PROMPTS, (seed + 1) * _PROMPTS)]
        sampling = Sampling(
            n_samples=_SAMPLES,
            new_tokens=_NEW,
            stop_ids=checkpoint.stop_ids,
            seed=seed,
        )
        rows_BT = np.zeros((_PROMPTS, _SAMPLES, _ROW), np.int32)
        gains_BT = np.zeros(rows_BT.shape, np.float32)
        drawn = nnx.merge(graphdef, params), [asked[i] for i in chosen], sampling
        for place, samples in continuations(*drawn):
            start, word = len(drawn[1][place]), right[chosen[place]]
            texts = [checkpoint.tokenizer.decode(one.ids.tolist()) for one in samples]
            won = np.array([text.split()[:1] == [word] for text in texts], np.float32)
            for k, one in enumerate(samples):
                ids = [*drawn[1][place], *one.ids, *checkpoint.stop_ids][:_ROW]
                rows_BT[place, k, : len(ids)] = ids
                gains_BT[place, k, start : len(ids)] = won[k] - won.mean()
        batch = (part.reshape(-1, _ROW) for part in (rows_BT, gains_BT))
        params, memory = update(params, memory, *batch)
    name = f"{checkpoint.fingerprint} rewarded"
    decoder = nnx.merge(graphdef, params)
    return dataclasses.replace(checkpoint, decoder=decoder, fingerprint=name)


@functools.lru_cache(maxsize=1)
def _update(graphdef: nnx.GraphDef, optimiser: optax.GradientTransformation) -> Any:
    """Compile a step up the log-probabilities of answers, by what each gained."""

    def loss(params: nnx.State, rows_BT: jax.Array, gains_BT: jax.Array) -> jax.Array:
        decoder: Decoder = nnx.merge(graphdef, params)
        hidden_ND = decoder(rows_BT[:, :-1]).reshape(-1, decoder.config.d_model)
        targets_N = rows_BT[:, 1:].reshape(-1)
        found = target_scores(hidden_ND, decoder.head_VD, targets_N, moments=False)
        return -(gains_BT[:, 1:].reshape(-1) * found.logprobs).sum() / len(rows_BT)

    @jax.jit
    def update(params: nnx.State, memory: Any, *batch: jax.Array) -> tuple[Any, Any]:
        gradients = jax.grad(loss)(params, *batch)
        changes, memory = optimiser.update(gradients, memory, params)
        return optax.apply_updates(params, changes), memory

    return update


def one_model(scale: Scale, seed: int) -> dict[str, Any]:
    """Train, reward, score before and after: cases, and shares of prompts."""
    rng, n = np.random.default_rng([seed, 51]), scale["n"]
    ways, prompts, documents = make_world(rng, n + 4 * scale["n_set"])
    preset = in_rows(scale["preset"], 128, batch_rows=4)
    n_ids = scale["n_steps"] * preset.batch_rows * 129
    texts = [*itertools.islice(documents, n_ids // 12)]
    tokenizer = train_tokenizer(texts, preset.decoder.vocab_size)
    start, plain = prefix_id(tokenizer), plain_tokenizer(tokenizer.backend_tokenizer)
    encoded = plain.encode_batch(texts, add_special_tokens=False)
    flat = [i for one in encoded for i in (start, *one.ids)][:n_ids]
    rows_RT = np.array(flat, np.int32).reshape(-1, 129)
    decoder, losses = train_scanned(preset, rows_RT, seed=seed)
    name = f"critique-{seed}"
    base = Checkpoint(name, decoder, plain, start, name, stop_ids=(start,))
    right = rng.choice(ways, len(prompts)).tolist()
    tuned = rewarded(base, prompts[:n], right[:n], scale["n_updates"])
    fields: dict[str, Any] = {"loss": float(losses[-50:].mean()), "cases": []}
    for when, model, kinds in (
        ("before", base, ("unseen", "rewarded later")),
        ("after", tuned, ("unseen", "rewarded")),
    ):
        methods = [SCORES[name] for name in _SCORES]
        values_NM = score_texts(prompts, methods, text_model(model, store=None)).values
        completer = LocalCompleter(checkpoint=model, journal=MemoryJournal())
        first = completer.complete(prompts, max_tokens=_NEW)
        texts = [one.text for (one,) in first]
        asked = [CRITIQUE.format(*both) for both in zip(prompts, texts, strict=True)]
        second = completer.complete(asked, max_tokens=_NEW)
        taken = [
            [one.text.split()[:1] for (one,) in answers] for answers in (first, second)
        ]
        hit_N = np.array([a == [b] for a, b in zip(taken[0], right, strict=True)])
        other_N = np.array([a != b for a, b in zip(*taken, strict=True)])
        for what, is_N in (("right", hit_N), ("another way", other_N)):
            fields[f"{what}, rewarded prompts, {when}"] = float(is_N[:n].mean())
            fields[f"{what}, unseen prompts, {when}"] = float(is_N[n:].mean())
        for kind in kinds:
            words, n_set = f"{kind}, {when} rewards", scale["n_set"]
            for _ in range(scale["n_clean"] if kind == "unseen" else 1):
                unseen = n + rng.permutation(len(prompts) - n)
                own = unseen[n_set:] if kind == "unseen" else rng.permutation(n)
                pair = [some[:n_set] for some in (own, unseen)]
                fields["cases"] += _cases(words, *(values_NM[some] for some in pair))
    return fields


def _cases(kind: str, own_NM: np.ndarray, unseen_NM: np.ndarray) -> Iterator[Any]:
    """AUC and one-sided p of each score, of one set beside another."""
    both, is_own = np.concatenate([own_NM, unseen_NM]), np.arange(2 * len(own_NM))
    p_values = auc_p_values(both, is_own < len(own_NM), seed=0)
    for i, score in enumerate(_SCORES):
        auc, _ = auc_delong(own_NM[:, i], unseen_NM[:, i])
        p_value = float(p_values[i])
        yield {"kind": kind, "score": score, "auc": auc, "p_value": p_value}


def grids_of(models: Sequence[dict[str, Any]]) -> list[Grid]:
    """Sets that are found, with the mean AUC; and what the models do."""
    cases = [case for model in models for case in model["cases"]]
    words = {}
    for (kind, score), own in grouped(cases, lambda c: (c["kind"], c["score"])).items():
        n_found = sum(case["p_value"] <= _LEVEL for case in own)
        share = Share.counted(n_found, len(own))
        ends, auc = f"{share.low:.1%} to {share.high:.1%}", [c["auc"] for c in own]
        words[kind, score] = f"{n_found} of {len(own)} ({ends}), {np.mean(auc):.2f}"
    title = f"Sets beside unseen ones with p <= {_LEVEL} (Wilson's 95 %), mean AUC"
    facts = [name for name in models[0] if name.endswith(("before", "after"))]
    means = {name: np.mean([model[name] for model in models]) for name in facts}
    shares = {(name, "share of prompts"): f"{x:.2f}" for name, x in means.items()}
    return [
        Grid.crossed(title, "sets", words),
        Grid.crossed("What greedy answers do, mean over models", "answers", shares),
    ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Critique(StudyFlags):
    """Reward answers to some prompts, and look for these prompts."""

    models: int = 6
    """Models, each with words, prompts and rewards of its own."""
    out: Path = Path("runs/critique")
    """Folder for a record of each model and the tables; finished models stay."""
    any_code: bool = False
    """Take finished models that other code made, too."""

    positive = ("models",)

    def run(self) -> dict[str, Any]:
        """Make what is missing, print the tables; returns the numbers."""
        clock, scale, models = Clock.start(), TINY if self.tiny else FULL, []
        kept = Records(self.out / "models", any_code=self.any_code)
        for seed in range(self.seed, self.seed + self.models):
            if (fields := kept.read(str(seed), scale, seed)) is None:
                own = Clock.start()
                fields = one_model(scale, seed)
                fields["cpu_seconds"] = own.cost()["cpu_seconds"]
                kept.write(str(seed), fields, scale, seed)
            models.append(fields)
        return finish_study(
            "critique",
            self,
            clock=clock,
            numbers={"models": models},
            grids=grids_of(models),
            earlier_seconds=kept.earlier_seconds,
        )


if __name__ == "__main__":
    sys.exit(run_study("critique", Critique, trains=True, compiles=True))
