"""How many requests a second does the client of servers ask, beside another version?

Question: requests a second of trees of this repository that take turns.
Command: `python -m eval.speed.served --trees OLD NEW`. Hardware: two CPU cores, a
minute a tree. Headline: docs/log.
"""

import asyncio
import contextlib
import dataclasses
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
from pathlib import Path

from eval.study import run_study, say
from jaxcontam.errors import InputError

# Milliseconds until an answer, tokens of it, and whether answers are kept in a journal.
_CELLS = ((0, 64, False), (50, 64, False), (50, 64, True), (50, 1000, False))

# What a tree runs; the names are those of all trees since threads ask.
_CHILD = """
import sys, tempfile, time
from pathlib import Path
from jaxcontam.data.journal import Journal
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.api.logprobs import Way, read_prompt_scores
url, n, n_tokens, is_kept, in_flight = sys.argv[1], *map(int, sys.argv[2:])
way = Way(echo=True, ids=True, max_tokens=0)
prompts = [(i, *range(1, n_tokens)) for i in range(n)]
check = lambda body, answer: read_prompt_scores(answer, way, tuple(body["prompt"][0]))
with tempfile.TemporaryDirectory() as folder:
    journal = Journal(Path(folder) / "requests.jsonl") if is_kept else None
    settings = {"api_key": None, "journal": journal, "concurrency": in_flight}
    with ApiClient(ApiModel(url, "m"), **settings) as client:
        def ask(prompts):
            client.post_all("/completions", [way.body(p) for p in prompts], check=check)
        ask([(-1 - i, *range(1, n_tokens)) for i in range(in_flight)])
        start = time.perf_counter()
        ask(prompts)
        print(n / (time.perf_counter() - start))
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServedSpeed:
    """Requests a second of the client, in trees that take turns."""

    trees: tuple[Path, ...] = (Path("."),)
    """Checkouts of this repository, the one to compare with first."""
    requests: int = 1024
    """Requests of each round and tree."""
    in_flight: int = 64
    """Requests that are under way at once."""
    rounds: int = 5
    """Interleaved rounds."""

    def __post_init__(self) -> None:
        if min(self.requests, self.in_flight, self.rounds) < 1:
            raise InputError("--requests, --in-flight and --rounds: at least 1 each")

    def run(self) -> dict:
        """Measure and print; returns the rates by cell and tree, one a round."""
        found, spawned = {}, multiprocessing.get_context("spawn")
        for cell in _CELLS:
            rates = found[cell] = {str(tree): [] for tree in self.trees}
            ready, answers = spawned.Pipe()
            words = (answers, *cell[:2])
            server = spawned.Process(target=_serve, args=words, daemon=True)
            server.start()
            url = f"http://127.0.0.1:{ready.recv()}/v1"
            for _ in range(self.rounds):
                for tree in self.trees:
                    rates[str(tree)].append(self._rate(tree, url, *cell[1:]))
            server.kill()
            first, *_ = medians = [statistics.median(own) for own in rates.values()]
            words = ", ".join(f"{rate:,.0f} ({rate / first:.2f})" for rate in medians)
            say(f"{cell[0]} ms, {cell[1]} tokens, journal {cell[2]}: {words}")
        return {str(cell): rates for cell, rates in found.items()}

    def _rate(self, tree: Path, url: str, n_tokens: int, is_kept: bool) -> float:
        words = [url, self.requests, n_tokens, int(is_kept), self.in_flight]
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, *map(str, words)],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree.resolve())},
            stdout=subprocess.PIPE,
            check=True,
        )
        return float(done.stdout)


def _serve(ready, delay_ms: int, n_tokens: int) -> None:
    """Give every request the same answer after a while, at a port that is told."""
    logprobs = {"tokens": ["x"] * n_tokens, "token_logprobs": [-1.5] * n_tokens}
    answer = json.dumps({"choices": [{"index": 0, "text": "", "logprobs": logprobs}]})
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n"

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while asked := await reader.readuntil(b"\r\n\r\n"):
                length = asked.lower().split(b"content-length:")[1].split(b"\r\n")[0]
                await reader.readexactly(int(length))
                await asyncio.sleep(delay_ms / 1000)
                writer.write((head + answer).encode())

    async def listen() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(listen())


if __name__ == "__main__":
    sys.exit(run_study("speed.served", ServedSpeed))
