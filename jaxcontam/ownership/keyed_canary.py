"""Keyed canary: does a model know values that only published rows connect to keys?"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.arguments import Dtype, public
from jaxcontam.data.release import commitment, search_warnings
from jaxcontam.data.templates import fill_template, template_pieces
from jaxcontam.errors import InputError
from jaxcontam.ownership.keyed_rows import VALUES, KeyedGroup, read_keyed_rows
from jaxcontam.ownership.keyed_test import (
    EFFECT_UNIT,
    METHOD,
    MIN_EFFECT,
    PROMPTS,
    chat_rows,
    value_of,
)
from jaxcontam.progress import Progress, default_bar
from jaxcontam.proof.result import (
    DESIGNED,
    RELEASED,
    AuditResult,
    Evidence,
    OrderResult,
)
from jaxcontam.proof.verdict import decide
from jaxcontam.reports.stopwatch import Stopwatch
from jaxcontam.scoring.completer import Completion
from jaxcontam.scoring.prompted_model import PromptedModel, open_prompted
from jaxcontam.terminal import printable

NEW_TOKENS = 64


@public
def keyed_canary(
    model: Any,
    rows: str | Path,
    seed_file: str | Path,
    *,
    tokenizer: Any = None,
    dtype: Dtype = "float32",
    template: str | None = None,
    new_tokens: int = NEW_TOKENS,
    min_effect: float = MIN_EFFECT,
    seed: int = 0,
    progress: Progress | None = None,
    command: Sequence[str] = ("canary",),
) -> AuditResult:
    """Ask a model for the values of keyed rows; needs its answers alone.

    Null hypothesis: the model never saw the rows. Values were drawn from the seed, so
    each is then uniform and independent of every answer, whatever the model does: the
    sum of right answers has a known law, without assumptions. Silence is no evidence:
    a model may know values and decline to say them.

    Args:
        model: A directory, hub name, `api:URL#NAME`, a Flax decoder in memory, or an
            opened `PromptedModel`.
        rows: The file that `canary --make --chat` wrote.
        seed_file: Its seed file.
        tokenizer: The fast tokenizer of a model in memory.
        dtype: Matmul precision of a directory.
        template: What is asked, with `{question}` in it (default: the question).
        new_tokens: Most tokens of an answer; a model that thinks first needs more.
        min_effect: Share of known groups that `no evidence` must be able to find.
        seed: Seeds the Monte Carlo cross-check alone: answers are the likeliest ones.
        progress: Called with answers done and in all; by default a bar.
        command: The command line that asks.

    Raises:
        InputError: If the files do not belong together, the template is not one, a
            question does not fit into the context, or the model does not answer.
    """
    watch = Stopwatch()
    groups, released = read_keyed_rows(Path(rows), Path(seed_file))
    prompts = keyed_prompts(groups, template)
    with open_prompted(model, tokenizer=tokenizer, dtype=dtype) as opened:
        check_fits(opened, prompts, new_tokens)
        with default_bar(progress, "asking for values") as bar:
            found = opened.completer.complete(
                prompts, max_tokens=new_tokens, progress=bar
            )
        answers = [one for (one,) in found]
        notes = (*opened.notes(), *_lost(answers))
    bits = len(groups) * math.log2(len(VALUES))
    sealed = commitment(Path(seed_file), made=released.made, bits=bits)
    named = np.array([value_of(one) for one in answers], object)
    scores = chat_rows(groups, named.reshape(len(groups), -1).tolist())
    result = OrderResult(
        benchmark=printable(Path(rows).stem),
        fingerprint=released.released_digest,
        content_digest=released.content_digest,
        order_provenance=RELEASED,
        n_examples=released.n_examples,
        method=METHOD.name,
        primary=True,
        null=DESIGNED,
        validity="exact",
        n_strata=len(groups),
        n_orders=len(VALUES) - 1,
        numbers=METHOD.analyse(list(scores), seed),
        effect_unit=EFFECT_UNIT,
        commitments=(sealed,),
        warnings=(*notes, *search_warnings([sealed])),
    )
    report = watch.report(
        command,
        seed,
        decide([result], min_effect=min_effect),
        model=opened.info,
        device=opened.device,
        min_effect=min_effect,
    )
    return AuditResult(report, (Evidence(scores=scores),))


def keyed_prompts(groups: Sequence[KeyedGroup], template: str | None) -> list[str]:
    """Prompts for the values, group by group."""
    form = template or "{question}"
    if {field for _, field in template_pieces(form)} - {None} != {"question"}:
        raise InputError(
            f"--template needs {{question}} and no other field, got {form!r}",
            hint=r'such as "Question: {question}\nAnswer:"',
        )
    return [
        fill_template(form, {"question": words.format(question=question)}, "--template")
        for group in groups
        for question in group.questions
        for words in PROMPTS
    ]


def check_fits(model: PromptedModel, prompts: Sequence[str], new_tokens: int) -> None:
    """Refuse questions that a local model could not read whole, and still answer."""
    if model.read is None or model.context is None:
        return
    longest = max(len(model.read(prompt)) for prompt in prompts)
    left = model.context - longest
    if new_tokens > left:
        raise InputError(
            f"the longest question has {longest} tokens, which with {new_tokens} new "
            f"ones exceed the model's context of {model.context}",
            hint=f"--new-tokens {left} or fewer" if left > 0 else "a shorter template",
        )


def _lost(answers: Sequence[Completion]) -> tuple[str, ...]:
    n_refused = sum(bool(one.refused) for one in answers)
    n_none = sum(value_of(one) is None for one in answers) - n_refused
    found = ((n_refused, "were refused"), (n_none, "name none of the values"))
    return tuple(
        f"{n} of {len(answers)} answers {words}, and count as not right"
        for n, words in found
        if n
    )
