"""`jaxcontam serve`: a model of our own behind OpenAI's protocol."""

import dataclasses
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import KEY_VARIABLE, key_from_environment
from jaxcontam.terminal import visible

_LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
_MOST_PORT = 65_535
_INTERRUPTED = 130


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """Answer OpenAI's protocol (completions with log-probabilities, chat) with a model.

    Before a text the tokenizer's BOS or EOS is put, as `score` does, but not the space
    that tokenizers such as Llama's add; to token ids nothing is added. If the
    environment variable API_KEY is set, clients must send it.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Model directory in Hugging Face layout, or a hub name such as org/name."""
    host: str = "127.0.0.1"
    """Address to listen on; any but this machine's own lets others in."""
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    name: str | None = None
    """What clients call the model (default: the directory's name)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the operands of matrix products; bfloat16 is faster, and not as exact."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _MOST_PORT:
            raise InputError(f"--port must be from 0 to {_MOST_PORT}, got {self.port}")
        if self.name is not None and not self.name.strip():
            raise InputError("--name must not be empty")

    def run(self) -> int:
        """Serve until interrupted; returns 0."""
        api_key = key_from_environment()
        # JAX and transformers are imported once the flags are known to be good.
        from jaxcontam.models.chat import read_chat_layout
        from jaxcontam.models.checkpoint import load_checkpoint, model_directory
        from jaxcontam.scoring.compiled import keep_compiled
        from jaxcontam.serving.model import ServedModel
        from jaxcontam.serving.server import ModelServer, check_address

        check_address(self.host, self.port)
        keep_compiled()
        directory = model_directory(self.model)
        chat = read_chat_layout(directory)
        checkpoint = load_checkpoint(self.model, dtype=self.dtype)
        model = ServedModel(checkpoint, name=self.name, chat=chat)
        server = ModelServer(model, host=self.host, port=self.port, api_key=api_key)
        _print_start(server.url, model.name, directory, has_key=api_key is not None)
        if self.host not in _LOCAL_HOSTS and api_key is None:
            print(
                f"jaxcontam serve: whoever reaches {self.host} can use the model; "
                f"set {KEY_VARIABLE} to ask for a key",
                file=sys.stderr,
            )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            if server.one_at_a_time.locked():
                print("\nstopping after this request; ctrl-C stops now", flush=True)
        try:
            server.server_close()
        except KeyboardInterrupt:
            # The thread that computes cannot be ended otherwise.
            os._exit(_INTERRUPTED)
        print("\nstopped", flush=True)
        return 0


def _print_start(url: str, name: str, directory: Path, *, has_key: bool) -> None:
    """Where the model is, and first requests; the folder tells its context."""
    key = f' -H "Authorization: Bearer ${KEY_VARIABLE}"' if has_key else ""
    name = visible(name)
    print(
        f"{name} at {url} (ctrl-C stops)\n"
        f"  curl {url}/completions{key} -d '"
        '{"prompt": "Hello", "max_tokens": 8, "temperature": 0}\'\n'
        f"  jaxcontam audit {shlex.quote(f'api:{url}#{name}')} BENCHMARK "
        + visible(f"--tokenizer {shlex.quote(str(directory))}"),
        flush=True,
    )
