"""Chat messages to token ids."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.encoding import WithinRows, encode_texts, first_added
from jaxcontam.errors import InputError, first_line
from jaxcontam.models.chat_template import ChatTemplate, Message
from jaxcontam.models.checkpoint import Checkpoint, read_fast_tokenizer
from jaxcontam.models.generation import prompt_ids


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ChatLayout:
    """Chat template of a model; without one, messages are joined by newlines."""

    tokenizer: Any = None
    template: ChatTemplate | None = None

    def ids(
        self,
        checkpoint: Checkpoint,
        messages: Sequence[Message],
        *,
        room: int | None = None,
    ) -> np.ndarray:
        """Prompt ids of the messages; what stands first stands once.

        That is the tokenizer's BOS or EOS in the plain layout, as before every scored
        text; in a template's what it writes itself, or what the tokenizer adds.
        """
        prefix_id = checkpoint.prefix_id
        if self.tokenizer is None:
            text = "\n".join(message["content"] for message in messages)
            (ids,) = encode_texts(checkpoint.tokenizer, [text], begins=True)
        else:
            backend = self.tokenizer.backend_tokenizer
            within = WithinRows(backend, checkpoint.config.vocab_size)
            (ids,) = encode_texts(within, [self.text(messages, asks=True)])
            if prefix_id not in (*ids[:1], first_added(backend)):
                prefix_id = None
        return prompt_ids(ids, prefix_id=prefix_id, room=room)

    def text(self, messages: Sequence[Message], *, asks: bool) -> str:
        """Text of the template for one chat; see `texts`."""
        (found,) = self.texts([messages], asks=asks)
        return found

    def texts(self, chats: Sequence[Sequence[Message]], *, asks: bool) -> list[str]:
        """Texts that the template writes of chats; `asks` begins an answer in each."""
        assert self.template is not None, "the plain layout has no template"
        return self.template.texts(chats, asks=asks)


def read_chat_layout(directory: Path) -> ChatLayout:
    """The chat template of a model's folder, or the plain layout where it has none."""
    place = directory / "chat_template.jinja"
    if not place.is_file():
        place = directory / "tokenizer_config.json"
    return chat_layout(read_fast_tokenizer(directory), place)


def chat_layout(tokenizer: Any, place: Path = Path("tokenizer")) -> ChatLayout:
    """The chat template of a tokenizer, which errors say is in `place`."""
    if not getattr(tokenizer, "chat_template", None):
        return ChatLayout()
    try:
        template = tokenizer.get_chat_template()
    except ValueError as e:
        raise InputError(f"{place}: {first_line(e)}") from e
    return ChatLayout(
        tokenizer, ChatTemplate(template, tokenizer.special_tokens_map, place)
    )
