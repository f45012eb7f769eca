"""What `jaxcontam replicate --dry-run` counts: a run whose answers are made up."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxcontam.analyses.prompted_model import PromptedModel, served_info, served_name
from jaxcontam.analyses.replicate import ask, judged_by, room
from jaxcontam.analyses.replicate_plan import ReplicationPlan
from jaxcontam.data.journal import Journal
from jaxcontam.methods.replication.instance import Completion
from jaxcontam.progress import Progress
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.budget import Budget
from jaxcontam.scoring.api.chat import PATH, answer_seed
from jaxcontam.scoring.api.prompts import ApiEstimate, estimate

# About a token each, as estimates count them; a judge is asked about both.
_TOKENS = ("xxx ", "yyy ")
# Requests by which a server shows whether it heeds the temperature.
_SAMPLING_REQUESTS = 4


@dataclasses.dataclass(slots=True, eq=False)
class CountingCompleter:
    """Answers everything with a made-up word; `bodies` are what it was asked."""

    name: str
    word: str = _TOKENS[0]
    bodies: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def complete(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        n_samples: int = 1,
        seed: int = 0,
        stop: tuple[str, ...] = (),
        progress: Progress | None = None,
    ) -> list[tuple[Completion, ...]]:
        """Answer with made-up words, and keep what was asked."""

        def body_of(prompt: str, sample: int) -> dict[str, Any]:
            return {
                "messages": [{"role": "user", "content": prompt}],
                "temperature": temperature,
                "seed": answer_seed(seed, sample),
                "max_tokens": max_tokens,
            } | ({"stop": list(stop)} if stop else {})

        asked = [body_of(p, i) for p in prompts for i in range(n_samples)]
        if n_samples > 1 and temperature > 0:
            asked += [body_of("", -1 - i) for i in range(_SAMPLING_REQUESTS)]
        self.bodies += asked
        # One word is no copy of a second piece, and so every answer is judged.
        answer = Completion(text=self.word * max_tokens)
        return [(answer,) * n_samples for _ in prompts]


def planned_words(
    plan: ReplicationPlan,
    models: Sequence[PromptedModel | ApiModel],
    *,
    judge: ApiModel | None,
    journal: Path,
    budget: Budget,
) -> str:
    """What a run would ask, counted by a run whose answers are made up."""
    counted = [
        CountingCompleter(
            model.name if isinstance(model, ApiModel) else model.completer.name, word
        )
        for model, word in zip(models, _TOKENS, strict=False)
    ]
    found = ask(plan, *map(_stand_in, models, counted))
    guided = [prompt for prompts in plan.guided for prompt in prompts]
    words = [
        before + _asked_words(plan, model, prompts, one.bodies, journal, budget)
        for before, prompts, model, one in zip(
            ("", "The reference: "),
            (plan.completion_prompts, guided),
            models,
            counted,
            strict=False,
        )
    ]
    if judge is not None:
        judges = CountingCompleter(judge.name)
        judged_by(found, judges)
        words.append(
            _judging_words(estimate(judge, PATH, judges.bodies, budget=budget))
        )
    if isinstance(models[0], ApiModel):
        return " ".join([*words, "Nothing was sent."])
    return "\n".join(words)


def _stand_in(
    model: PromptedModel | ApiModel, counted: CountingCompleter
) -> PromptedModel:
    if isinstance(model, ApiModel):
        return PromptedModel(
            name=served_name(model), completer=counted, info=served_info(model)
        )
    return dataclasses.replace(model, completer=counted)


def _asked_words(
    plan: ReplicationPlan,
    model: PromptedModel | ApiModel,
    prompts: Sequence[str],
    bodies: Sequence[dict[str, Any]],
    journal: Path,
    budget: Budget,
) -> str:
    """What a model is asked: these prompts, and as `bodies` those of other methods."""
    if isinstance(model, ApiModel):
        asked = estimate(model, PATH, bodies, journal=Journal(journal), budget=budget)
        return f"{asked.words()}."
    assert model.read is not None
    n_tokens = sum(len(model.read(prompt)) for prompt in prompts)
    n_more = len(bodies) - len(prompts)
    more = f", and {n_more:,} answers to further methods" if n_more else ""
    return (
        f"{len(prompts):,} completions of prompts of {n_tokens:,} tokens, "
        f"at most {room(plan, model)[0]:,} new tokens each{more}; nothing was asked."
    )


def _judging_words(found: ApiEstimate) -> str:
    cost = "" if found.cost is None else f", at most about {found.cost:.4g} to pay"
    return (
        f"The judge: at most {found.n_requests:,} requests, "
        f"{found.prompt_tokens:,} prompt tokens and {found.completion_tokens:,} new "
        f"ones{cost}."
    )
