"""Open a model behind a server: tokenizer, probe, client, scorer."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxcontam.data.encoding import CharacterTokenizer
from jaxcontam.data.files import read_json_object
from jaxcontam.data.journal import Journal, journal_in
from jaxcontam.errors import InputError
from jaxcontam.scoring.agreement import REPEATS_WITHIN
from jaxcontam.scoring.api.address import (
    KEY_VARIABLE,
    REFERENCE_KEY_VARIABLE,
    ApiModel,
    key_beside,
    parse_api,
)
from jaxcontam.scoring.api.budget import ApiOptions, Spending
from jaxcontam.scoring.api.client import ApiClient, snapshot_warning
from jaxcontam.scoring.api.eras import find_eras
from jaxcontam.scoring.api.logprobs import PATH, Way
from jaxcontam.scoring.api.probe import Capability, check_after, probe
from jaxcontam.scoring.api.prompts import CountedPrompts, ServedPrompts
from jaxcontam.scoring.api.request import Body
from jaxcontam.scoring.api.spot import SpotChecks
from jaxcontam.scoring.info import ModelInfo, ServedInfo
from jaxcontam.scoring.opened import OpenModel
from jaxcontam.scoring.remote import BEFORE_TEXT, RemoteScorer

JOURNAL_NAME = "requests.jsonl"
"""Answers that were paid for, in the folder of the report or of `--store`."""

# Most served models read more; an English token has four characters.
_CONTEXT_IDS = 2_048
_CONTEXT_CHARACTERS = 4_096
# A run that is done does not wait long for the last request.
_LAST_TRIES = 3
_CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "n_ctx")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LocalTokenizer:
    """The tokenizer of a served model, with the context of a config.json beside it."""

    encoder: Any
    prefix_id: int | None
    context: int | None
    vocab_size: int
    digest: str


def open_api(
    word: str, options: ApiOptions, *, plan_only: bool, beside: Any = None
) -> OpenModel:
    """Open the model of a server, for `load`.

    `beside` is the model that this one is a reference for: its server's key is sent to
    no other, which gets REFERENCE_API_KEY.
    """
    model = parse_api(word, flag="MODEL")
    tokenizer = None
    if options.tokenizer is not None:
        tokenizer = read_local_tokenizer(options.tokenizer)
    # One budget for the probe and for what follows.
    spending = Spending(options.limits)
    found: Capability | None = None
    seen: frozenset[tuple[str, str]] = frozenset()
    way = Way(echo=True, ids=tokenizer is not None)
    asked_beside = () if beside is None else (beside,)
    own = KEY_VARIABLE if beside is None else REFERENCE_KEY_VARIABLE
    api_key, _ = key_beside(model.url, own, asked_beside)
    unkept = functools.partial(
        ApiClient,
        api_key=api_key,
        concurrency=options.concurrency,
        budget=spending,
    )
    if not plan_only:
        with unkept(model) as client:
            found = _probed(client, tokenizer)
        seen = frozenset(client.fingerprints)
        way = found.way
    prefix_id = BEFORE_TEXT if way.bos else None
    context = options.context or _CONTEXT_CHARACTERS
    if tokenizer is not None:
        prefix_id = tokenizer.prefix_id
        # What is written stands in the model's context too.
        context = options.context or tokenizer.context or _CONTEXT_IDS
        context -= way.max_tokens
    opened: list[ApiClient] = []
    tested: list[SpotChecks] = []

    def make_scorer(
        *, store: Path | None, batch_tokens: int | None = None, moments: bool = False
    ) -> RemoteScorer:
        del batch_tokens
        if moments:
            raise InputError(f"{word}: a served model gives no means and variances")
        if plan_only:
            journal = None if store is None else Journal(store / JOURNAL_NAME)
            return RemoteScorer(CountedPrompts(model, way, journal), context=context)
        journal = None if store is None else journal_in(store, JOURNAL_NAME)
        eras = None
        if journal is not None and found is not None:
            witness = found.witness
            eras = find_eras(journal, model, witness.prompt, witness.logprobs)
        client = unkept(model, journal=journal).__enter__()
        client.fingerprints |= seen
        opened.append(client)
        encoder = None if tokenizer is None else tokenizer.encoder
        tested.append(SpotChecks(client, way, encoder))
        prompts = ServedPrompts(client, way, tested[-1], eras)
        return RemoteScorer(prompts, context=context)

    return OpenModel(
        name=re.sub(r"[^\w.-]+", "-", model.name).strip(".-") or "model",
        fingerprint=_fingerprint(model, tokenizer),
        tokenizer=CharacterTokenizer() if tokenizer is None else tokenizer.encoder,
        prefix_id=prefix_id,
        context=context,
        info=ModelInfo(
            name=word,
            fingerprint=_fingerprint(model, tokenizer),
            n_parameters=None,
            dtype="unknown",
            precision="unknown",
            context=context,
            served=None
            if found is None
            else ServedInfo(
                way=way.words,
                has_bos=None if way.ids else way.bos,
                read_write_difference=found.error,
                repeat_difference=found.difference,
                n_probe_requests=found.n_requests,
            ),
        ),
        device=None,
        checkpoint=None,
        make_scorer=make_scorer,
        store_name="",
        vocab_size=None if tokenizer is None else tokenizer.vocab_size,
        notes=functools.partial(_notes, found, opened, tested, unkept, model),
    )


def read_local_tokenizer(directory: Path) -> LocalTokenizer:
    """The tokenizer of a folder, which needs no weights and no config.json."""
    from jaxcontam.models.checkpoint import read_tokenizer

    if not directory.is_dir():
        raise InputError(
            f"--tokenizer {directory}: no such folder",
            hint="a folder with the tokenizer.json of the served model",
        )
    path = directory / "config.json"
    config = read_json_object(path) if path.is_file() else {}
    encoder, prefix_id, _ = read_tokenizer(directory, config)
    known = [config.get(name) for name in _CONTEXT_FIELDS]
    return LocalTokenizer(
        encoder=encoder,
        prefix_id=prefix_id,
        context=next((n for n in known if type(n) is int and n > 1), None),
        vocab_size=max(encoder.get_vocab().values()) + 1,
        digest=hashlib.sha256(encoder.to_str().encode()).hexdigest(),
    )


def _probed(client: ApiClient, tokenizer: LocalTokenizer | None) -> Capability:
    """Abilities of the server, probed anew each run, since servers change."""

    def post(body: Body, *, once: bool = False) -> Any:
        return client.post(PATH, body, is_kept=False, tries=1 if once else None)

    prefix_id = None if tokenizer is None else tokenizer.prefix_id
    found = probe(
        post,
        url=client.model.url,
        tokenizer=None if tokenizer is None else tokenizer.encoder,
        prefix=() if prefix_id is None else (prefix_id,),
    )
    return dataclasses.replace(found, n_requests=client.n_sent)


def _fingerprint(model: ApiModel, tokenizer: LocalTokenizer | None) -> str:
    """Digest of what is known of a served model; its weights are not."""
    parts = [model.url, model.name, None if tokenizer is None else tokenizer.digest]
    return f"sha256:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"


def _notes(
    found: Capability | None,
    opened: list[ApiClient],
    tested: list[SpotChecks],
    unkept: Callable[[ApiModel], ApiClient],
    model: ApiModel,
) -> tuple[str, ...]:
    """Notes on the server's answers for the report; a model that changed is refused."""
    notes = []
    if found is not None and not found.way.ids:
        notes.append(
            "without --tokenizer the server cuts texts into tokens of its own, and "
            "lengths and numbers of tokens are counted in characters"
        )
    difference = max(
        [0.0 if found is None else found.difference, *(s.difference for s in tested)]
    )
    if difference > REPEATS_WITHIN:
        notes.append(
            "the server does not repeat itself: the same request gave a "
            f"log-probability that differs by {difference:.2g} nats"
        )
    if any(s.n_again and not s.n_compared for s in tested):
        notes.append(
            "what the server writes after texts like the rows could not be read again, "
            "so its numbers were checked on other texts alone"
        )
    notes += [warning for c in opened if (warning := snapshot_warning(c)) is not None]
    # Where nothing was asked, the probe has just compared.
    if found is None or not any(client.n_sent for client in opened):
        return tuple(notes)
    with unkept(model) as client:
        words = check_after(
            functools.partial(client.post, PATH, is_kept=False, tries=_LAST_TRIES),
            found.way,
            model,
            found.witness,
        )
    notes += [] if words is None else [words]
    return tuple(notes)
