"""Examples as turns of a chat, and what a model's files say of how it was tuned."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoder, WithinRows
from jaxcontam.data.model_files import GGUF
from jaxcontam.errors import InputError
from jaxcontam.orders.design import Turn
from jaxcontam.scoring.opened import OpenModel

_QUESTIONS = ("question", "prompt", "instruction", "query", "problem", "input")
_ANSWERS = ("answer", "response", "output", "completion", "solution", "target")
_TEMPLATE_FILES = ("chat_template.jinja", "tokenizer_config.json")
_CARD, _CARD_CHARACTERS = "README.md", 200_000
_SAID_BY_CARD = re.compile(
    r"\b(GRPO|RLHF|RLVR|PPO|DPO|reinforcement learning|reasoning model|"
    r"(?:instruction|supervised)[- ](?:fine-?)?tun(?:ed|ing))\b",
    re.I,
)


def turn_words(turn: Turn) -> str:
    """Say in a report how examples were read."""
    place = f"the {turn}'s turn"
    if turn == "both":
        place = "both turns, its question the user's and its answer the assistant's,"
    return f"each example was read as {place} of a chat, by the model's own template"


def chat_texts(
    model: OpenModel, turn: Turn, benchmark: Benchmark
) -> tuple[Sequence[str], Encoder]:
    """Each example as the model's chat template writes it, and what reads it.

    A chat is read as in tuning: with the space that some tokenizers put before a text.
    """
    from jaxcontam.models.chat import chat_layout, read_chat_layout

    folder = None if model.checkpoint is None else model.checkpoint.folder
    layout = chat_layout(model.given_tokenizer)
    if folder is not None:
        layout = read_chat_layout(folder)
    if layout.template is None:
        raise InputError(
            f"--separator chat: {model.name} has no chat template",
            hint="name a model directory with one, or leave out the flag",
        )
    parts = [(text, "") if turn == "user" else ("", text) for text in benchmark.texts]
    if turn == "both":
        places = (f"{benchmark.name}: example {i + 1}" for i in range(len(benchmark)))
        parts = [*map(_question_and_answer, benchmark.rows, places)]
    roles = ("user",) if turn == "user" else ("user", "assistant")
    chats = [
        [
            {"role": role, "content": text}
            for role, text in zip(roles, own, strict=False)
        ]
        for own in parts
    ]
    # Else a text could tell its place in the file by the time of its writing.
    reads_clock = "strftime_now" in layout.template.source
    if reads_clock:
        chats = [chat for own in chats for chat in (own, chats[0])]
    written = layout.texts(chats, asks=False)
    if reads_clock:
        written, again = written[::2], written[1::2]
        if any(text != written[0] for text in again):
            raise InputError(
                f"--separator chat: the template of {model.name} reads the clock, "
                "which advanced between two examples",
                hint="run it again if it was midnight; otherwise leave out the flag",
            )
    for i, (texts, text) in enumerate(zip(parts, written, strict=True)):
        if not _stand_in_order(texts, text):
            raise InputError(
                f"--separator chat: the template of {model.name} leaves out text of "
                f"{benchmark.name}: example {i + 1}",
                hint="put it into another turn, or leave out the flag",
            )
    backend = layout.tokenizer.backend_tokenizer
    # A template may write a token that the model has no row for.
    n_rows = model.vocab_size
    return written, backend if n_rows is None else WithinRows(backend, n_rows)


def _stand_in_order(parts: Sequence[str], written: str) -> bool:
    """True if each text stands behind the one before, but for blanks around it."""
    start = 0
    for part in map(str.strip, parts):
        start = written.find(part, start)
        if start < 0:
            return False
        start += len(part)
    return True


def tuning_notes(model: OpenModel) -> tuple[str, ...]:
    """A warning if the model's template or card says that it may have been tuned.

    Source:
        Wang et al., arXiv:2510.02386: brief GRPO hid from most detectors what was read
        in supervised tuning. They tried no order test; docs/results/tuned.md did, with
        tuning on other text.
    """
    folder = None if model.checkpoint is None else model.checkpoint.folder
    if folder is None:
        return ()
    templates = "".join(_head(folder / name) for name in _TEMPLATE_FILES)
    if folder.suffix == GGUF and folder.is_file():
        from jaxcontam.models.gguf_file import open_gguf

        templates = open_gguf(folder).fields.get("tokenizer.chat_template", "")
    found = ["chat template"] if "messages" in templates else []
    if "<think" in templates:
        found = ["chat template with thoughts"]
    if said := _SAID_BY_CARD.search(_head(folder / _CARD)):
        found.append(f"{said[0]!r} in its card")
    if not found:
        return ()
    return (
        f"{model.name} may have been tuned ({', '.join(found)}): tuning, and above all "
        "reinforcement learning, can hide what was read before, so a null result says "
        "less than one for its base model",
    )


def _head(path: Path) -> str:
    if not path.is_file():
        return ""
    try:
        # A character has at most four bytes; files of /proc have no size and no end.
        n_bytes = min(4 * _CARD_CHARACTERS, path.stat().st_size)
        with path.open("rb") as file:
            text = file.read(n_bytes).decode("utf-8", errors="replace")
    except OSError:
        return ""
    return text[:_CARD_CHARACTERS]


def _question_and_answer(
    row: Mapping[str, object] | None, place: str
) -> tuple[str, str]:
    fields = {name: text for name, text in (row or {}).items() if isinstance(text, str)}
    asked, answer = (
        next((fields[name] for name in names if name in fields), None)
        for names in (_QUESTIONS, _ANSWERS)
    )
    if asked is None or answer is None:
        raise InputError(
            f"{place}: --separator chat:both needs a question and an answer",
            hint=f"fields such as {_QUESTIONS[0]!r} and {_ANSWERS[0]!r}; or choose "
            "user",
        )
    return asked, answer
