"""Chat models behind servers: prompts in, texts out, each paid for once.

What a reasoning model thinks aloud between <think> marks is part of its text: readers
of the text cut it off, because servers differ in whether they do.
"""

import hashlib
import re
from collections.abc import Sequence

from jaxcontam.progress import Progress
from jaxcontam.scoring.api.address import Answer, ApiError, Body, RefusedError
from jaxcontam.scoring.api.client import ApiClient
from jaxcontam.scoring.completer import Completion

PATH = "/chat/completions"
_HARMLESS = "Answer with the number 1."
# Fields that some servers reject, and the name they accept instead (None: leave out).
_OTHER_NAMES = {"max_tokens": "max_completion_tokens", "seed": None, "stop": None}
# Error messages about a prompt and answer longer than the context.
_TOO_LONG = re.compile(r"context|too (long|large|many)|max\w*[ _]tokens", re.I)
# Has many equally good answers; four identical ones are no coincidence.
_RANDOM = "Write ten random numbers between 1 and 1000, and nothing else."
N_RANDOM, _RANDOM_SEED = 4, 0


class ChatCompleter:
    """A chat model as a `Completer`.

    A server that knows no `seed`, no `stop`, or `max_completion_tokens` in place of
    `max_tokens`, is found out by the first request, and asked without them; answers
    are cut at stop strings here as well. Nothing else is left out, because it would
    change what the numbers mean. Before several answers to a prompt are asked for, four
    to one of its own show whether the server samples at all: some take a temperature
    and pass it over.
    """

    def __init__(self, client: ApiClient):
        self.client = client
        self._left_out: frozenset[str] = frozenset()
        self._settled: set[frozenset[str]] = set()
        self._sampled: set[float] = set()

    @property
    def name(self) -> str:
        """The model's name on the server."""
        return self.client.model.name

    def complete(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int | None,
        temperature: float = 0.0,
        n_samples: int = 1,
        seed: int = 0,
        stop: tuple[str, ...] = (),
        progress: Progress | None = None,
    ) -> list[tuple[Completion, ...]]:
        """As `Completer.complete`; one request a sample."""

        def body_of(prompt: str, sample: int) -> Body:
            own = answer_seed(seed, sample)
            return chat_body(prompt, own, max_tokens, temperature, stop)

        bodies = [body_of(p, sample) for p in prompts for sample in range(n_samples)]
        harmless = body_of(_HARMLESS, 0)
        if n_samples > 1 and temperature > 0:
            self._check_sampling(body_of(_RANDOM, 0), harmless)
        answers = self._ask(bodies, harmless, progress)
        found = [_completion(answer, stop) for answer in answers]
        return [
            tuple(found[i * n_samples : (i + 1) * n_samples])
            for i in range(len(prompts))
        ]

    def _ask(
        self, bodies: Sequence[Body], harmless: Body, progress: Progress | None = None
    ) -> list[Answer | RefusedError]:
        """Answers by the fields that the server knows."""
        self._settle(bodies, harmless)
        sent = list(map(self._sent, bodies))
        return self.client.post_all(
            PATH,
            [body for body, _ in sent],
            progress,
            repeats=[repeat for _, repeat in sent],
            keeps_refusals=True,
            check=self._check,
        )

    def _check_sampling(self, body: Body, harmless: Body) -> None:
        """Find out whether answers vary at all, once a temperature."""
        temperature = max(1.0, body["temperature"])
        if temperature in self._sampled:
            return
        seeds = [answer_seed(_RANDOM_SEED, i) for i in range(N_RANDOM)]
        bodies = [{**body, "temperature": temperature, "seed": seed} for seed in seeds]
        found = {_completion(a, ()).text.strip() for a in self._ask(bodies, harmless)}
        if len(found) == 1 and found != {""}:
            raise ApiError(
                f"{self.client.model.url}: {N_RANDOM} answers at temperature "
                f"{temperature:g} are the same: the server does not sample",
                hint="enable sampling in the server, or leave out the methods that "
                "compare samples",
            )
        self._sampled.add(temperature)

    def _settle(self, bodies: Sequence[Body], harmless: Body) -> None:
        """Find out what the server knows of the fields, by one request if it can be."""
        fields = frozenset(harmless)
        first = next((body for body in bodies if not self._is_held(body)), None)
        if fields in self._settled or first is None:
            return
        # One text may be refused for what it says.
        if self._find_fields(first) and (refusal := self._find_fields(harmless)):
            hint = "check the name of the model, the key and the settings"
            if _TOO_LONG.search(str(refusal)):
                hint = f"lower --new-tokens, if they are the reason; {hint}"
            raise ApiError(
                f"{refusal}, for every request", hint=hint, status=refusal.status
            )
        self._settled.add(fields)

    def _find_fields(self, body: Body) -> RefusedError | None:
        """Leave out what the server refuses by name; the first refusal if all fails."""
        before, first = self._left_out, None
        while True:
            sent, repeat = self._sent(body)
            try:
                self.client.post(PATH, sent, repeat=repeat, check=self._check)
                return None
            except RefusedError as e:
                if self._is_held(body):
                    # It took the fields, and gave no answer to this text.
                    return None
                first = first or e
                known = [name for name in _OTHER_NAMES if name in sent]
                named = [n for n in known if re.search(rf"\b{n}\b", str(e))]
                if not named:
                    self._left_out = before
                    return first
                self._left_out |= {named[0]}

    def _is_held(self, body: Body) -> bool:
        sent, repeat = self._sent(body)
        return self.client.holds(PATH, sent, repeat=repeat)

    def _sent(self, body: Body) -> tuple[Body, int]:
        """A body as the server knows it; its seed as the repeat where none is sent."""
        names = {name: _OTHER_NAMES[name] for name in self._left_out}
        known = [(names.get(name, name), value) for name, value in body.items()]
        sent = {name: value for name, value in known if name is not None}
        return sent, body["seed"] if "seed" in self._left_out else 0

    def _check(self, body: Body, answer: Answer) -> Answer:
        """The text of an answer in its place; raises RefusedError if it has none."""
        del body
        choice = answer["choices"][0]
        refusal, words = choice["message"].get("refusal"), ""
        if isinstance(refusal, str) and refusal.strip():
            words = " ".join(refusal.split())
        elif choice.get("finish_reason") == "content_filter":
            words = "an answer that a content filter cut off"
        if words:
            raise RefusedError(f"{self.client.model.url}: {words}")
        return {"choices": [{"message": {"content": _text(answer)}}]}


def chat_body(
    prompt: str,
    seed: int,
    max_tokens: int | None,
    temperature: float,
    stop: tuple[str, ...],
) -> Body:
    """A request for one sample, but for the model's name."""
    body: Body = {
        "messages": [{"role": "user", "content": prompt}],
        "temperature": temperature,
        "seed": seed,
    }
    body |= {} if max_tokens is None else {"max_tokens": max_tokens}
    return body | ({"stop": list(stop)} if stop else {})


def answer_seed(seed: int, sample: int) -> int:
    """The seed of a sample, in [0, 2**31); near seeds share none."""
    digest = hashlib.sha256(f"{seed} {sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


def _completion(answer: Answer | RefusedError, stop: tuple[str, ...]) -> Completion:
    if isinstance(answer, RefusedError):
        return Completion(text="", refused=str(answer))
    text = _text(answer)
    ends = [at for mark in stop if (at := text.find(mark)) >= 0]
    return Completion(text=text[: min(ends, default=len(text))])


def _text(answer: Answer) -> str:
    """Text of the answer; "" where there is none."""
    content = answer["choices"][0]["message"].get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        return ""
    # Half a surrogate pair is JSON, and no file in UTF-8 takes it.
    return content.encode("utf-8", "replace").decode()
