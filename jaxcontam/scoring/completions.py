"""Texts that a model of our own writes after others; no finished prompt is repeated."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from jaxcontam.data.journal import Journal, journal_key
from jaxcontam.models.chat import ChatLayout
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.generation import VERSION, Sampling, continuations, most_seconds
from jaxcontam.progress import Progress
from jaxcontam.scoring.completer import Completion


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LocalCompleter:
    """A model of our own that follows prompts; the journal keeps finished ones."""

    checkpoint: Checkpoint
    journal: Journal
    chat: ChatLayout = dataclasses.field(default_factory=ChatLayout)

    @property
    def name(self) -> str:
        """The checkpoint's."""
        return self.checkpoint.name

    def ids(self, prompt: str, *, room: int | None = None) -> np.ndarray:
        """Ids that the model reads of a prompt; `room` as for `prompt_ids`."""
        messages = [{"role": "user", "content": prompt}]
        return self.chat.ids(self.checkpoint, messages, room=room)

    def most_seconds(self, prompts: Sequence[str], *, max_tokens: int) -> float:
        """Time of likeliest answers to prompts if each is as long as it may be."""
        room = self.checkpoint.config.context - max_tokens
        ids = [self.ids(prompt, room=room) for prompt in prompts]
        sampling = Sampling(n_samples=1, new_tokens=max_tokens, temperature=0.0)
        return most_seconds(self.checkpoint.decoder, ids, sampling)

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
        """Write answers; a prompt that is too long for the context keeps its end."""
        sampling = Sampling(
            n_samples=n_samples,
            new_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
        )
        room = self.checkpoint.config.context - max_tokens
        ids = [self.ids(prompt, room=room) for prompt in prompts]
        found = complete_ids(
            self.checkpoint, ids, sampling, self.journal, stop=stop, progress=progress
        )
        return [tuple(Completion(text=text) for text in texts) for texts in found]


def complete_ids(
    checkpoint: Checkpoint,
    prompts: Sequence[np.ndarray],
    sampling: Sampling,
    journal: Journal,
    *,
    stop: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> list[tuple[str, ...]]:
    """`n_samples` texts that follow the ids of each prompt, kept in the journal.

    `sampling` has no stop ids: the checkpoint's are taken. A sample ends before the
    strings of `stop`; progress is in prompts.
    """
    sampling = dataclasses.replace(sampling, stop_ids=checkpoint.stop_ids)
    tokenizer = checkpoint.tokenizer
    # Without strings the key is that of older journals.
    more = [list(stop)] if stop else []
    keys = [
        journal_key(
            "completion",
            VERSION,
            checkpoint.fingerprint,
            checkpoint.decoder.dtype,
            ids.tolist(),
            dataclasses.asdict(sampling),
            *more,
        )
        for ids in prompts
    ]

    def text_of(i: int, ids: np.ndarray) -> str:
        # Some tokenizers write the space before a word only where a word is before it.
        return continuation_text(tokenizer, prompts[i].tolist(), ids.tolist())

    # Copies of a prompt have the same samples, drawn once.
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    missing = sorted(i for key, i in first.items() if key not in journal)
    done = len(prompts) - len(missing)
    if progress is not None:
        progress(done, len(prompts))

    def has_ended(index: int, ids: np.ndarray) -> bool:
        text = text_of(missing[index], ids)
        return any(words in text for words in stop)

    for index, samples in continuations(
        checkpoint.decoder,
        [prompts[i] for i in missing],
        sampling,
        has_ended=has_ended if stop else None,
    ):
        i = missing[index]
        texts = []
        for text in (text_of(i, ids) for ids in samples):
            # Up to the first of the strings.
            cuts = [text.partition(words)[0] for words in stop]
            texts.append(min([text, *cuts], key=len))
        journal.add(keys[i], texts)
        done += 1
        if progress is not None:
            progress(done, len(prompts))
    return [tuple(journal[key]) for key in keys]


# Most bytes of a letter.
_LETTER = 4


def continuation_text(
    tokenizer: Tokenizer, before: Sequence[int], ids: Sequence[int]
) -> str:
    """Text that ids add after others, all decoded at once."""
    before = _last(tokenizer, before)
    return _decode(tokenizer, [*before, *ids])[len(_decode(tokenizer, before)) :]


def _last(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The last 8 ids of a text, or more, from where a letter begins if that is near."""
    starts = [max(0, len(ids) - 8 - more) for more in range(_LETTER)]
    for start in starts:
        for n in range(1, _LETTER + 1):
            # An unfinished letter is decoded to it.
            if "\ufffd" not in _decode(tokenizer, ids[start : start + n]):
                return list(ids[start:])
    return list(ids[starts[0] :])


def _decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=True)
