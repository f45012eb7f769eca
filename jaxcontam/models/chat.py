"""Chat messages to token ids."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.encoding import encode_texts, first_added
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import Checkpoint, read_fast_tokenizer
from jaxcontam.models.generation import prompt_ids

Message = Mapping[str, str]
"""`role` and `content`."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ChatLayout:
    """Chat template of a model, or the plain layout of a base model.

    Attributes:
        tokenizer: A transformers tokenizer with a chat template; None is the plain
            layout: the messages' contents joined by newlines, so that a base model
            reads a single message like the prompt of a completion.
    """

    tokenizer: Any = None

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

        Args:
            checkpoint: The model.
            messages: At least one.
            room: See `prompt_ids`.

        Raises:
            InputError: If the template refuses the messages.
        """
        prefix_id = checkpoint.prefix_id
        if self.tokenizer is None:
            text = "\n".join(message["content"] for message in messages)
            (ids,) = encode_texts(checkpoint.tokenizer, [text])
            return prompt_ids(ids, prefix_id=prefix_id, room=room)
        text = self.text(messages, asks=True)
        (ids,) = encode_texts(self.tokenizer.backend_tokenizer, [text])
        if prefix_id not in (*ids[:1], first_added(self.tokenizer.backend_tokenizer)):
            prefix_id = None
        return prompt_ids(ids, prefix_id=prefix_id, room=room)

    def text(self, messages: Sequence[Message], *, asks: bool) -> str:
        """What the template writes; `asks` ends with the begin of an answer.

        Raises:
            InputError: If it refuses the messages.
        """
        try:
            return self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=asks,
            )
        except Exception as e:  # a template raises errors of its own
            words = " ".join(str(e).split())
            raise InputError(f"the chat template refuses the messages ({words})") from e


def read_chat_layout(directory: Path) -> ChatLayout:
    """The chat template of a model's folder, or the plain layout where it has none.

    Templates run in the sandbox of transformers.

    Raises:
        InputError: If the tokenizer does not load.
    """
    tokenizer = read_fast_tokenizer(directory)
    return ChatLayout(tokenizer if tokenizer.chat_template else None)
