"""Models that `jaxcontam replicate` asks, and what asking them would take."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.analyses.replicate import PromptedModel, ask, judged_by, room
from jaxcontam.analyses.replicate_plan import ReplicationPlan
from jaxcontam.data.journal import Journal
from jaxcontam.methods.replication.instance import Completion, Progress
from jaxcontam.results import ModelInfo
from jaxcontam.scoring.api.address import (
    JUDGE_KEY_VARIABLE,
    KEY_VARIABLE,
    PREFIX,
    ApiModel,
    key_from_environment,
    parse_api,
)
from jaxcontam.scoring.api.budget import Budget, Spending
from jaxcontam.scoring.api.chat import PATH, ChatCompleter, answer_seed
from jaxcontam.scoring.api.client import ApiClient, snapshot_warning
from jaxcontam.scoring.api.estimate import ApiEstimate, estimate

JOURNAL_NAME = "requests.jsonl"
"""Finished answers under `--out`, from which a rerun goes on."""

# About a token, as estimates count them.
_TOKEN = "xxx "
# Requests by which a server shows whether it heeds the temperature.
_SAMPLING_REQUESTS = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How servers are asked.

    Attributes:
        spending: What the model and the judge may use together, and have used.
        concurrency: Requests at a time.
        retry_refused: Ask again for what was refused in an earlier run.
    """

    spending: Spending
    concurrency: int
    retry_refused: bool


def local_model(
    word: str, *, dtype: str, is_plain: bool, out: Path | None, digest: str
) -> tuple[PromptedModel, Path]:
    """Load a model of our own.

    Args:
        word: A directory or a hub name.
        dtype: Matmul precision.
        is_plain: Prompts are read as any text is, without the chat template.
        out: Folder of the report, or None.
        digest: `sha256:` of the instances; part of the name of a folder.

    Returns:
        The model, and the folder of the report.
    """
    from jaxcontam.models.chat import read_chat_layout
    from jaxcontam.models.checkpoint import load_checkpoint, model_directory
    from jaxcontam.scoring.compiled import keep_compiled
    from jaxcontam.scoring.completions import LocalCompleter
    from jaxcontam.scoring.local import device_info, model_info

    keep_compiled()
    checkpoint = load_checkpoint(word, dtype=dtype)
    out = out or _default_out(checkpoint.name, digest)
    layout = read_chat_layout(model_directory(word))
    completer = LocalCompleter(
        checkpoint=checkpoint,
        journal=Journal(out / JOURNAL_NAME),
        # A base model reads a prompt as it reads any text.
        chat=None if layout.tokenizer is None or is_plain else layout,
    )
    encode = checkpoint.tokenizer.encode
    return PromptedModel(
        completer=completer,
        info=model_info(checkpoint),
        device=device_info(),
        tokenize=lambda text: encode(text, add_special_tokens=False).ids,
        read=completer.ids,
        context=checkpoint.config.context,
    ), out


def served_folder(model: ApiModel, out: Path | None, digest: str) -> Path:
    """Folder of the report of a served model."""
    return out or _default_out(model.name.replace("/", "-"), digest)


@contextlib.contextmanager
def served_model(
    model: ApiModel, out: Path, settings: ServerSettings
) -> Iterator[PromptedModel]:
    """A model behind a server, asked within the block."""
    with _client(model, out, settings, key_from_environment()) as client:
        yield PromptedModel(
            completer=ChatCompleter(client),
            info=served_info(model),
            notes=lambda: _snapshot_notes(client),
        )


@contextlib.contextmanager
def open_judge(
    judge: ApiModel, asked: str | None, out: Path, settings: ServerSettings
) -> Iterator[ChatCompleter]:
    """A chat model that judges, asked within the block.

    Its key is API_KEY; where the model that is judged stands behind another server,
    JUDGE_API_KEY alone, because no server may see the key of another one.

    Args:
        judge: Where it is.
        asked: The word that names the model that is judged, or None.
        out: Folder of the report.
        settings: Of the run.
    """
    is_elsewhere = (
        asked is not None
        and asked.startswith(PREFIX)
        and parse_api(asked, flag="MODEL").url != judge.url
    )
    api_key = key_from_environment(JUDGE_KEY_VARIABLE)
    if api_key is None and not is_elsewhere:
        api_key = key_from_environment()
    variable = JUDGE_KEY_VARIABLE if is_elsewhere else KEY_VARIABLE
    with _client(judge, out, settings, api_key, variable) as client:
        yield ChatCompleter(client)


def judge_notes(judge: ChatCompleter) -> tuple[str, ...]:
    """A warning if the judge changed while it was asked."""
    return tuple(f"of the judge: {words}" for words in _snapshot_notes(judge.client))


def served_info(model: ApiModel) -> ModelInfo:
    """What reports say of a model of which nothing but its name is known."""
    return ModelInfo(
        name=model.name,
        fingerprint="unknown",
        n_parameters=None,
        dtype="unknown",
        precision="unknown",
        context=None,
    )


@dataclasses.dataclass(slots=True, eq=False)
class CountingCompleter:
    """Answers everything with made-up words, and keeps what it was asked.

    Attributes:
        name: Of the model in whose place it answers.
        bodies: Requests, as `ChatCompleter` makes them.
    """

    name: str
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
        """See `Completer`."""

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
        answer = Completion(text=_TOKEN * max_tokens)
        return [(answer,) * n_samples for _ in prompts]


def planned_words(
    plan: ReplicationPlan,
    model: PromptedModel | ApiModel,
    *,
    judge: ApiModel | None,
    journal: Path,
    budget: Budget,
) -> str:
    """What a run would ask, counted by a run whose answers are made up.

    Args:
        plan: Of the run.
        model: What would be asked.
        judge: Who would judge, or None.
        journal: Of answers that an earlier run has.
        budget: Prices of requests.
    """
    is_served = isinstance(model, ApiModel)
    counted = CountingCompleter(model.name if is_served else model.completer.name)
    stand_in = (
        PromptedModel(completer=counted, info=served_info(model))
        if is_served
        else dataclasses.replace(model, completer=counted)
    )
    found = ask(plan, stand_in)
    judging = ""
    if judge is not None:
        judges = CountingCompleter(judge.name)
        judged_by(found, judges)
        judging = _judging_words(estimate(judge, PATH, judges.bodies, budget=budget))
    if is_served:
        asked = estimate(
            model, PATH, counted.bodies, journal=Journal(journal), budget=budget
        )
        words = (f"{asked.words()}.", judging, "Nothing was sent.")
        return " ".join(filter(None, words))
    prompts = plan.completion_prompts
    assert model.read is not None
    n_tokens = sum(len(model.read(prompt)) for prompt in prompts)
    n_more = len(counted.bodies) - len(prompts)
    more = f", and {n_more:,} answers to further methods" if n_more else ""
    return (
        f"{len(prompts):,} completions of prompts of {n_tokens:,} tokens, "
        f"at most {room(plan, model)[0]:,} new tokens each{more}; nothing was asked."
        + (f"\n{judging}" if judging else "")
    )


def _judging_words(found: ApiEstimate) -> str:
    cost = "" if found.cost is None else f", at most about {found.cost:.4g} to pay"
    return (
        f"The judge: at most {found.n_requests:,} requests, "
        f"{found.prompt_tokens:,} prompt tokens and {found.completion_tokens:,} new "
        f"ones{cost}."
    )


def _client(
    model: ApiModel,
    out: Path,
    settings: ServerSettings,
    api_key: str | None,
    key_variable: str = KEY_VARIABLE,
) -> ApiClient:
    return ApiClient(
        model,
        api_key=api_key,
        journal=Journal(out / JOURNAL_NAME),
        concurrency=settings.concurrency,
        budget=settings.spending,
        key_variable=key_variable,
        retry_refused=settings.retry_refused,
    )


def _snapshot_notes(client: ApiClient) -> tuple[str, ...]:
    warning = snapshot_warning(client)
    return () if warning is None else (warning,)


def _default_out(name: str, digest: str) -> Path:
    return Path("runs/replicate") / f"{name}-{digest[7:15]}"
