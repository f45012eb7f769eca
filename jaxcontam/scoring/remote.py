"""A model behind a server: opened, then asked for log-probabilities of sequences.

Sequences are token ids where a tokenizer is given. Else they are code points, and the
server cuts the text into tokens of its own. The log-probability of such a token then
stands at its first character; sums are those of the server's tokens, a fixed function
of the text, so tests of orders stay exact. A text longer than the context is sent in
windows that may begin within a word, which the server then reads as other tokens than
it would in the whole text.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from jaxcontam.amounts import amount
from jaxcontam.data.encoding import CharacterTokenizer, text_of
from jaxcontam.data.files import read_json_object
from jaxcontam.data.journal import Journal, journal_in
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress, progress_after, progress_in
from jaxcontam.scoring.api.address import (
    KEY_VARIABLE,
    REFERENCE_KEY_VARIABLE,
    Answer,
    ApiModel,
    Body,
    RefusedError,
    key_beside,
    parse_api,
    request_key,
)
from jaxcontam.scoring.api.budget import (
    ApiEstimate,
    ApiOptions,
    Budget,
    Spending,
    Usage,
)
from jaxcontam.scoring.api.client import ApiClient, snapshot_warning
from jaxcontam.scoring.api.logprobs import (
    PATH,
    Prompt,
    PromptScores,
    Way,
    read_prompt_scores,
    ways,
)
from jaxcontam.scoring.api.trust import (
    Capability,
    Eras,
    SpotChecks,
    check_after,
    find_eras,
    probe,
)
from jaxcontam.scoring.asked import REPEATS_WITHIN, going_out, put_back
from jaxcontam.scoring.opened import ModelInfo, OpenModel, ServedInfo
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.rows import FIRST_K, Row, rows_of
from jaxcontam.scoring.scorer import SequenceSums, TokenTable

JOURNAL_NAME = "requests.jsonl"
"""Answers that were paid for, in the folder of the report or of `--store`."""
# Requests in a block, of which one row is tested.
_AT_ONCE = 128
# So many tokens of no text have the same number in a model.
_FEWEST_ALIKE = 8
# English and code in the tokenizers of today.
_CHARACTERS_PER_TOKEN = 4
# Most served models read more; an English token has four characters.
_CONTEXT_IDS = 2_048
_CONTEXT_CHARACTERS = 4_096
# A run that is done does not wait long for the last request.
_LAST_TRIES = 3
_CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "n_ctx")


BEFORE_TEXT = 0x110000
"""Stands for what a server puts before a text; one above the last code point."""


Pair = tuple[np.ndarray, np.ndarray]
"""Ids that are read, and those after them that are scored."""


class ServedPrompts:
    """Asks a server; the client is closed with this object."""

    def __init__(
        self,
        client: ApiClient,
        way: Way,
        spots: SpotChecks | None = None,
        eras: Eras | None = None,
    ):
        """Wrap a client; without eras all kept answers are compared."""
        self.client = client
        self.ids = way.ids
        self._way, self._spots = way, spots
        self._eras, self._era = eras, 0
        # Scorers live as long as a run needs them, which no `with` block shows.
        weakref.finalize(self, client.__exit__, None, None, None)

    def holds(self, prompt: Prompt) -> bool:
        """True if the journal has the answer."""
        return self.client.holds(PATH, self._way.body(prompt), repeat=-self._era)

    def held(self, prompts: Sequence[Prompt]) -> list[bool]:
        """True for each answer of `scores` that the journal has."""
        self._choose_era(prompts)
        return [self.holds(prompt) for prompt in prompts]

    def scores(
        self, prompts: Sequence[Prompt], progress: Progress | None
    ) -> list[PromptScores]:
        """Ask in a random order; all answers are of one era, as they are compared."""
        self._choose_era(prompts)
        order, found = going_out(len(prompts)), []
        for start in range(0, len(prompts), _AT_ONCE):
            block = [prompts[i] for i in order[start : start + _AT_ONCE]]
            hears = progress_after(progress, start, len(prompts))
            ask = functools.partial(self._asked, progress=hears)
            if self._spots is None or all(map(self.holds, block)):
                found += ask([(prompt, 0) for prompt in block])
            else:
                found += self._spots.scored(block, ask)
        return put_back(order, found)

    def _choose_era(self, prompts: Sequence[Prompt]) -> None:
        if self._eras is not None:
            bodies = map(self._way.body, prompts)
            self._era = self._eras.of_call([self.client.key(PATH, b) for b in bodies])

    def _asked(
        self, asked: Sequence[tuple[Prompt, int]], progress: Progress | None
    ) -> list[PromptScores]:
        """Log-probabilities of prompts, each with what tells its repeats apart."""
        answers = self.client.post_all(
            PATH,
            [self._way.body(prompt) for prompt, _ in asked],
            progress,
            repeats=[repeat or -self._era for _, repeat in asked],
            check=self._check,
        )
        for (prompt, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, RefusedError):
                which = f"for {len(prompt)} ids"
                if isinstance(prompt, str):
                    start = f"{prompt[:40]!r} ({len(prompt)} long)"
                    which = f"for the text that begins with {start}"
                hint = "if it is too long for the model, --context N makes requests "
                raise InputError(f"{answer}, {which}", hint=f"{hint}shorter")
        return answers

    def _check(self, body: Body, answer: Answer) -> PromptScores:
        prompt = body["prompt"]
        prompt = prompt if isinstance(prompt, str) else tuple(prompt[0])
        found = read_prompt_scores(answer, self._way, prompt)
        values = found.logprobs
        if len(values) >= _FEWEST_ALIKE and (values == values[0]).all():
            raise ValueError(
                f"made-up log-probabilities: {values[0]:g} for every token"
            )
        return found


class CountedPrompts:
    """Sends nothing; counts what would be sent."""

    def __init__(self, model: ApiModel, way: Way, journal: Journal | None):
        self.ids = way.ids
        self._model, self._way, self._journal = model, way, journal
        # Lengths of different requests by key; None where the journal has the answer.
        self._lengths: dict[str, int | None] = {}

    def held(self, prompts: Sequence[Prompt]) -> list[bool]:
        """Count what is to be sent: True for what is not, as an answer will be there.

        Which way the server takes is not known before it is asked: any will do.
        """
        found = []
        for prompt in prompts:
            own, *others = (
                request_key(self._model, PATH, way.body(prompt))
                for way in (self._way, *ways(ids=self.ids))
            )
            found.append(own in self._lengths)
            if own not in self._lengths:
                kept = () if self._journal is None else self._journal
                found[-1] = any(key in kept for key in (own, *others))
                self._lengths[own] = None if found[-1] else len(prompt)
        return found

    def scores(
        self, prompts: Sequence[Prompt], progress: Progress | None
    ) -> list[PromptScores]:
        """Numbers of the right form, made up."""
        del progress
        places = [np.arange(1, len(prompt)) for prompt in prompts]
        return [PromptScores(np.full(len(at), -1.0), at) for at in places]

    def estimate(self, budget: Budget) -> ApiEstimate:
        """Requests so far, of which each writes a token at most."""
        lengths = [n for n in self._lengths.values() if n is not None]
        per_token = 1 if self.ids else _CHARACTERS_PER_TOKEN
        usage = Usage(len(lengths), math.ceil(sum(lengths) / per_token), len(lengths))
        return ApiEstimate.of(usage, len(self._lengths) - len(lengths), budget)


class RemoteScorer:
    """Scores sequences and pairs, each what follows a context in its own request."""

    store = None

    def __init__(self, prompts: ServedPrompts | CountedPrompts, *, context: int):
        self.prompts = prompts
        self.context = context

    @property
    def pairs(self) -> Self:
        """This scores continuations, too."""
        return self

    def sums(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> SequenceSums:
        """Sum each sequence, as `Scorer.sums`."""
        n = len(sequences)
        loglik, first, n_scored = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)
        scored, n_cached = self._rows(sequences, progress)
        for row, own, at in scored:
            loglik[row.sequence] += own.sum()
            n_scored[row.sequence] += len(own)
            if row.window.start == 0:
                first[row.sequence] = own[at + row.first + 1 <= FIRST_K].sum()
        return SequenceSums(loglik, first, n_cached, n_scored)

    def token_table(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> TokenTable:
        """Score every token; where text is sent, every token of the server's."""
        scored, n_cached = self._rows(sequences, progress)
        logprobs: list[list[np.ndarray]] = [[] for _ in sequences]
        starts: list[list[np.ndarray]] = [[] for _ in sequences]
        # Rows of a sequence stand in its order.
        for row, own, at in scored:
            logprobs[row.sequence].append(own.astype(np.float32))
            starts[row.sequence].append(at + row.window.first_target)
        return TokenTable(
            [np.concatenate(parts)[None] for parts in logprobs],
            n_cached,
            None if self.prompts.ids else [np.concatenate(part) for part in starts],
        )

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """Score continuations, as `PairScorer.logprobs`.

        In text, a token counts for the part in which it begins; its score stands at its
        first character, and other characters have 0.
        """
        pairs = [(group.prefix, ids) for group in groups for ids in group.continuations]
        scored, n_cached = self._scored(pairs, progress)
        rest, found, n_scored = iter(scored), [], []
        for group in groups:
            of_group = [np.zeros(len(ids), np.float32) for ids in group.continuations]
            n_scored.append([])
            for own in of_group:
                logprobs, at = next(rest)
                # Parts of one character begin at one place.
                np.add.at(own, at, logprobs.astype(np.float32))
                n_scored[-1].append(len(at))
            found.append(of_group)
        return PairScores(found, n_cached, n_scored)

    def _rows(
        self, sequences: Sequence[np.ndarray], progress: Progress | None
    ) -> tuple[list[tuple[Row, np.ndarray, np.ndarray]], int]:
        """Rows of sequences, each with log-probabilities, their places; ids held."""
        rows, pairs = rows_of(sequences, self.context), []
        for row in rows:
            ids, n_read = row.ids(sequences), row.first + 1
            pairs.append((ids[:n_read], ids[n_read:]))
        scored, n_cached = self._scored(pairs, progress)
        found = [(row, *one) for row, one in zip(rows, scored, strict=True)]
        return found, n_cached

    def _scored(
        self, pairs: Sequence[Pair], progress: Progress | None
    ) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
        """Log-probabilities of each second part, their places in it; ids held."""
        prompts = [prompt_of(pair, ids=self.prompts.ids) for pair in pairs]
        sizes = [len(own) for _, own in pairs]
        n_cached = sum(itertools.compress(sizes, self.prompts.held(prompts)))
        scores = self.prompts.scores(prompts, progress_in(progress, sum(sizes)))
        found = []
        for (context, _), score in zip(pairs, scores, strict=True):
            at = score.starts + _n_before(context) - len(context)
            found.append((score.logprobs[at >= 0], at[at >= 0]))
        return found, n_cached


def prompt_of(pair: Pair, *, ids: bool) -> Prompt:
    """Prompt for both parts: their ids, or the text of their code points."""
    sequence = np.concatenate(pair)
    if ids:
        return tuple(sequence.tolist())
    return text_of(sequence[_n_before(sequence) :].tolist())


def _n_before(ids: np.ndarray) -> int:
    """1 where something stands before the text that is not sent."""
    return int(len(ids) > 0 and ids[0] == BEFORE_TEXT)


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
    served = _ServedModel(word, options, beside)
    found = None if plan_only else served.probed()
    model, tokenizer = served.model, served.tokenizer
    context = options.context or _CONTEXT_CHARACTERS
    prefix_id = BEFORE_TEXT if served.way.bos else None
    if tokenizer is not None:
        prefix_id = tokenizer.prefix_id
        # What is written stands in the model's context too.
        context = options.context or tokenizer.context or _CONTEXT_IDS
        context -= served.way.max_tokens
    parts = [model.url, model.name, None if tokenizer is None else tokenizer.digest]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return OpenModel(
        name=re.sub(r"[^\w.-]+", "-", model.name).strip(".-") or "model",
        fingerprint=f"sha256:{digest}",
        tokenizer=CharacterTokenizer() if tokenizer is None else tokenizer.encoder,
        prefix_id=prefix_id,
        context=context,
        info=ModelInfo(
            name=word,
            fingerprint=f"sha256:{digest}",
            n_parameters=None,
            dtype="unknown",
            precision="unknown",
            context=context,
            served=found,
        ),
        device=None,
        checkpoint=None,
        make_scorer=functools.partial(served.scorer, context),
        store_name="",
        vocab_size=None if tokenizer is None else tokenizer.vocab_size,
        notes=served.notes,
    )


class _ServedModel:
    """A model behind a server, with one budget, and what its answers showed so far."""

    def __init__(self, word: str, options: ApiOptions, beside: Any):
        self.word = word
        self.model = model = parse_api(word, flag="MODEL")
        self.tokenizer = None
        if options.tokenizer is not None:
            self.tokenizer = read_local_tokenizer(options.tokenizer)
        self.way = Way(echo=True, ids=self.tokenizer is not None)
        variable = KEY_VARIABLE if beside is None else REFERENCE_KEY_VARIABLE
        others = () if beside is None else (beside,)
        spending = Spending(options.limits)
        self._connect = functools.partial(
            ApiClient,
            model,
            api_key=key_beside(model.url, variable, others)[0],
            concurrency=options.concurrency,
            budget=spending,
        )
        self._found: Capability | None = None
        self._seen: set[tuple[str, str]] = set()
        self._clients: list[ApiClient] = []
        self._spots: list[SpotChecks] = []

    def probed(self) -> ServedInfo:
        """Ask what the server can do, anew in each run, since servers change."""
        tokenizer = self.tokenizer
        prefix_id = None if tokenizer is None else tokenizer.prefix_id
        with self._connect() as client:

            def post(body: Body, *, once: bool = False) -> Answer:
                return client.post(PATH, body, is_kept=False, tries=1 if once else None)

            found = self._found = probe(
                post,
                url=self.model.url,
                tokenizer=None if tokenizer is None else tokenizer.encoder,
                prefix=() if prefix_id is None else (prefix_id,),
            )
        self.way, self._seen = found.way, client.fingerprints
        return ServedInfo(
            way=found.way.words,
            has_bos=None if found.way.ids else found.way.bos,
            read_write_difference=found.error,
            repeat_difference=found.difference,
            n_probe_requests=client.n_sent,
        )

    def scorer(
        self,
        context: int,
        *,
        store: Path | None,
        batch_tokens: int | None = None,
        moments: bool = False,
    ) -> RemoteScorer:
        """As `OpenModel.make_scorer`; unless it was probed, the server is not asked."""
        del batch_tokens
        if moments:
            raise InputError(
                f"{self.word}: a served model gives no means and variances"
            )
        if (found := self._found) is None:
            journal = None if store is None else Journal(store / JOURNAL_NAME)
            counted = CountedPrompts(self.model, self.way, journal)
            return RemoteScorer(counted, context=context)
        journal = None if store is None else journal_in(store, JOURNAL_NAME)
        eras = None
        if journal is not None:
            eras = find_eras(journal, self.model, found.text, found.logprobs)
        client = self._connect(journal=journal)
        client.fingerprints |= self._seen
        self._clients.append(client)
        encoder = None if self.tokenizer is None else self.tokenizer.encoder
        self._spots.append(SpotChecks(client, self.way, encoder))
        prompts = ServedPrompts(client, self.way, self._spots[-1], eras)
        return RemoteScorer(prompts, context=context)

    def notes(self) -> tuple[str, ...]:
        """Notes on the answers for the report; a model that changed is refused."""
        if (found := self._found) is None:
            return ()
        notes: list[str | None] = []
        if not found.way.ids:
            notes.append(
                "without --tokenizer the server uses its own tokens, and lengths are "
                "counted in characters"
            )
        difference = max([found.difference, *(s.difference for s in self._spots)])
        if difference > REPEATS_WITHIN:
            notes.append(
                "the server is not deterministic: the same request gave a "
                f"log-probability that differs by {amount(difference)} nats"
            )
        if any(spots.n_again and not spots.n_compared for spots in self._spots):
            notes.append(
                "the server's continuations of texts like the rows could not be read "
                "back, so its numbers were checked only on other texts"
            )
        notes += map(snapshot_warning, self._clients)
        # Where nothing was asked, the probe has just compared.
        if any(client.n_sent for client in self._clients):
            with self._connect() as client:
                post = functools.partial(
                    client.post, PATH, is_kept=False, tries=_LAST_TRIES
                )
                notes.append(check_after(post, self.model.url, found))
        return tuple(note for note in notes if note is not None)


def read_local_tokenizer(directory: Path) -> LocalTokenizer:
    """The tokenizer of a folder, which needs no weights and no config.json."""
    from jaxcontam.models.checkpoint import read_tokenizer

    if not directory.is_dir():
        raise InputError(
            f"--tokenizer {directory}: no such folder",
            hint="name a folder with the tokenizer.json of the served model",
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
