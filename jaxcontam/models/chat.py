"""Chat messages to token ids."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.encoding import encode_texts
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import Checkpoint, read_fast_tokenizer

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

    def ids(self, checkpoint: Checkpoint, messages: Sequence[Message]) -> np.ndarray:
        """Prompt ids of the messages.

        A template writes its own prefix; the plain layout starts with the tokenizer's
        BOS or EOS, as every scored text does.

        Raises:
            InputError: If the template refuses the messages.
        """
        if self.tokenizer is None:
            text = "\n".join(message["content"] for message in messages)
            prefix = [] if checkpoint.prefix_id is None else [checkpoint.prefix_id]
            return np.array(
                [*prefix, *encode_texts(checkpoint.tokenizer, [text])[0]], np.int32
            )
        text = self.text(messages, asks=True)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return np.array(ids, np.int32)

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
