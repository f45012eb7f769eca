"""Chat templates, rendered in a process that can be ended.

A template is a stranger's program. The sandbox of transformers keeps it from files, not
from loops and large strings, and nothing ends a thread that holds Python's lock.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from jaxcontam.data import encoding
from jaxcontam.data.encoding import parts, too_much, watched
from jaxcontam.data.files import limited_memory
from jaxcontam.errors import InputError

Message = Mapping[str, str]
"""`role` and `content`."""

# Characters that a template may write besides the messages, and for each of theirs.
_MOST_WRITTEN, _MOST_A_CHARACTER = 1 << 16, 8
# Those of all texts of a file, and of an answer of the process.
_MOST_TOGETHER, _ANSWER = 1 << 29, 1 << 24
_MOST_WORDS = 500
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from jaxcontam.models.chat_template import serve; serve()"
)
_HINT = "leave it out, or name another model: it may never end"


class ChatTemplate:
    """A chat template of a model, as Jinja `source`."""

    def __init__(self, source: str, tokens: Mapping[str, Any], place: Path):
        """Hold a template; its process begins with the first text.

        `tokens` are special tokens by their names in templates, `place` is the file.
        """
        self.source = source
        self._tokens = {
            name: [*map(str, token)] if isinstance(token, list | tuple) else str(token)
            for name, token in tokens.items()
        }
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None

    def texts(self, chats: Sequence[Sequence[Message]], *, asks: bool) -> list[str]:
        """Texts that the template writes of chats; `asks` begins an answer in each.

        It may take 300 s and 1 GiB for a MiB of messages, and write 65,536 characters
        and 8 times those of the messages, but 2^29 for all chats together.
        """
        contents = ["".join(one["content"] for one in chat) for chat in chats]
        found: list[str] = []
        n_written = 0
        for part in parts(contents):
            left = [[dict(one) for one in chat] for chat in chats[part]]
            while left:
                some = self._answer({"chats": left, "asks": bool(asks)})
                n_written += sum(map(len, some))
                if n_written > _MOST_TOGETHER:
                    raise self._wrote(_MOST_TOGETHER)
                found += some
                left = left[len(some) :]
        return found

    def _answer(self, request: dict[str, Any]) -> list[str]:
        """Texts of the first chats of a request, at least one."""
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        what = f"{self._place}: the chat template"

        def ask(sent: IO[Any] = process.stdin, back: IO[Any] = process.stdout) -> Any:
            _send(sent, request)
            return json.loads(back.readline() or b"null")

        try:
            answer = watched(ask, what, hint=_HINT, process=process.pid)
        except BaseException:
            self._end()
            raise
        if isinstance(answer, list):
            return answer
        self._end()
        match answer:
            case {"refuses": words}:
                raise InputError(f"{what} refuses the messages ({words})")
            case {"writes": most}:
                raise self._wrote(most)
            case {"fills": _}:
                raise too_much(what, _HINT)
        raise InputError(f"{what} ends the process that renders it", hint=_HINT)

    def _wrote(self, most: int) -> InputError:
        return InputError(
            f"{self._place}: the chat template writes more than {most:,} characters",
            hint=_HINT,
        )

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is not None:
            return self._process
        self._process = process = subprocess.Popen(
            [sys.executable, "-c", _START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is for the command, which ends this process.
            start_new_session=True,
        )
        weakref.finalize(self, _end_process, process)
        assert process.stdin is not None
        limits = {"memory": encoding._MOST_MEMORY, "seconds": encoding._MOST_SECONDS}
        head = {"template": self.source, "tokens": self._tokens, **limits}
        _send(process.stdin, head)
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end_process(process)


def _end_process(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    # What was not sent has nowhere to go.
    with contextlib.suppress(OSError), process:
        pass


def _send(file: IO[Any], value: Any) -> None:
    # ASCII: a text may hold half of a surrogate pair.
    file.write(json.dumps(value).encode() + b"\n")
    file.flush()


def serve() -> None:
    """Render chats that standard input names, for `ChatTemplate`."""
    # What a library prints is no answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from transformers.utils.chat_template_utils import render_jinja_template

    head = json.loads(sys.stdin.buffer.readline())
    for line in sys.stdin.buffer:
        # Nobody may be left to end this process: the alarm does.
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, head["seconds"] + 5)
        request = json.loads(line)
        texts: list[str] = []
        answer: Any = texts
        n_written = 0
        try:
            with limited_memory(head["memory"]):
                for chat in request["chats"]:
                    (text,), _ = render_jinja_template(
                        conversations=[chat],
                        chat_template=head["template"],
                        add_generation_prompt=request["asks"],
                        **head["tokens"],
                    )
                    n_given = sum(len(one["content"]) for one in chat)
                    most = _MOST_WRITTEN + _MOST_A_CHARACTER * n_given
                    if len(text) > most:
                        answer = {"writes": most}
                        break
                    texts.append(text)
                    n_written += len(text)
                    if n_written > _ANSWER:
                        break
        except MemoryError:
            answer = {"fills": True}
        except Exception as e:  # a template raises errors of its own
            answer = {"refuses": " ".join(str(e)[:_MOST_WORDS].split())}
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, answer)
