"""Models that follow prompts: here, behind a server, or as a judge."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.arguments import Dtype
from jaxcontam.data.journal import Journal, MemoryJournal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import (
    JUDGE_KEY_VARIABLE,
    KEY_VARIABLE,
    PREFIX,
    REFERENCE_KEY_VARIABLE,
    ApiModel,
    key_beside,
    parse_api,
)
from jaxcontam.scoring.api.budget import Budget, Spending
from jaxcontam.scoring.api.chat import ChatCompleter
from jaxcontam.scoring.api.client import ApiClient, snapshot_warning
from jaxcontam.scoring.completer import Completer
from jaxcontam.scoring.load import load
from jaxcontam.scoring.opened import DeviceInfo, ModelInfo


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PromptedModel:
    """A model that follows prompts.

    Its name is a part of those of folders, so without slashes. `device`, `tokenize`,
    `read` and `context` are None for a server.
    """

    name: str
    completer: Completer
    info: ModelInfo
    device: DeviceInfo | None = None
    tokenize: Callable[[str], Sequence[int]] | None = None
    read: Callable[[str], Sequence[int] | np.ndarray] | None = None
    context: int | None = None
    notes: Callable[[], tuple[str, ...]] = tuple


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of requests to servers; the model and the judge share one budget."""

    spending: Spending = dataclasses.field(default_factory=lambda: Spending(Budget()))
    concurrency: int = 8
    retry_refused: bool = False


@contextlib.contextmanager
def open_prompted(
    model: Any,
    *,
    tokenizer: Any = None,
    dtype: Dtype = "float32",
    is_plain: bool = False,
    beside: Any = None,
    journal: Callable[[str, ModelInfo], Journal] = lambda *_: MemoryJournal(),
    settings: ServerSettings | None = None,
) -> Iterator[PromptedModel]:
    """Open a directory, hub name, `api:URL#NAME` or model in memory for the block.

    `is_plain`: prompts are read without a chat template. `beside` is the model that
    this one is a reference for: no server may see the key of another one, so the key of
    this one is REFERENCE_API_KEY then. `journal`: (name of the model, what is known of
    it) -> where finished answers are kept.
    """
    if isinstance(model, PromptedModel):
        yield model
        return
    if isinstance(model, str) and model == beside:
        raise InputError(
            f"{model}: the reference is the model itself",
            hint="name a model that cannot have seen the benchmark",
        )
    if isinstance(model, str) and model.startswith(PREFIX):
        served = parse_api(model, flag="MODEL" if beside is None else "--reference")
        kept = journal(served_name(served), served_info(served))
        key = key_beside(served.url)
        if beside is not None:
            key = key_beside(served.url, REFERENCE_KEY_VARIABLE, [beside])
        with _client(served, kept, settings, *key) as client:
            yield PromptedModel(
                name=served_name(served),
                completer=ChatCompleter(client),
                info=served_info(served),
                notes=lambda: _snapshot_notes(client),
            )
        return
    from jaxcontam.models.chat import ChatLayout, chat_layout, read_chat_layout
    from jaxcontam.models.checkpoint import model_directory
    from jaxcontam.scoring.completions import LocalCompleter

    opened = load(model, tokenizer=tokenizer, dtype=dtype)
    checkpoint, chat, said = opened.weights("replicate"), ChatLayout(), ()
    if not is_plain:
        chat = chat_layout(tokenizer)
        if isinstance(model, str | Path):
            chat = read_chat_layout(model_directory(str(model)))
    if chat.tokenizer is None and not is_plain:
        said = (
            f"{opened.name} has no chat template: it reads instructions as plain text "
            "and may not follow them",
        )
    completer = LocalCompleter(
        checkpoint=checkpoint, journal=journal(opened.name, opened.info), chat=chat
    )
    encode = checkpoint.tokenizer.encode
    yield PromptedModel(
        name=opened.name,
        completer=completer,
        info=opened.info,
        device=opened.device,
        tokenize=lambda text: encode(text, add_special_tokens=False).ids,
        read=completer.ids,
        context=opened.context,
        notes=lambda: said,
    )


@contextlib.contextmanager
def open_judge(
    word: str,
    *,
    asked: Sequence[str | None],
    journal: Journal,
    settings: ServerSettings | None = None,
) -> Iterator[ChatCompleter]:
    """Open a chat model that judges, for the block.

    Its key is API_KEY; where a model that is judged (`asked`) stands behind another
    server, JUDGE_API_KEY alone: no server may see the key of another.
    """
    judge = parse_api(word, flag="--judge")
    key = key_beside(judge.url, JUDGE_KEY_VARIABLE, asked)
    with _client(judge, journal, settings, *key) as client:
        yield ChatCompleter(client)


def judge_notes(judge: Completer) -> tuple[str, ...]:
    """A warning if a judge behind a server changed while it was asked."""
    if not isinstance(judge, ChatCompleter):
        return ()
    return tuple(f"of the judge: {words}" for words in _snapshot_notes(judge.client))


def served_name(model: ApiModel) -> str:
    """Name of a served model as part of a folder's."""
    return model.name.replace("/", "-")


def served_info(model: ApiModel) -> ModelInfo:
    """Facts for reports on a model of which nothing but its name is known."""
    return ModelInfo(
        name=model.name,
        fingerprint="unknown",
        n_parameters=None,
        dtype="unknown",
        precision="unknown",
        context=None,
    )


def _client(
    model: ApiModel,
    journal: Journal,
    settings: ServerSettings | None,
    api_key: str | None,
    key_variable: str = KEY_VARIABLE,
) -> ApiClient:
    settings = settings or ServerSettings()
    return ApiClient(
        model,
        api_key=api_key,
        journal=journal,
        concurrency=settings.concurrency,
        budget=settings.spending,
        key_variable=key_variable,
        retry_refused=settings.retry_refused,
    )


def _snapshot_notes(client: ApiClient) -> tuple[str, ...]:
    warning = snapshot_warning(client)
    return () if warning is None else (warning,)
