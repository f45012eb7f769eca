"""Settings of a served model; usage, cost and estimates of requests, and a budget."""

import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxcontam.amounts import amount, counted
from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError
from jaxcontam.scoring.api.address import Answer, ApiModel, Body, request_key

_MILLION = 1_000_000
# Marks of roles and turns that a chat template puts around a message, at most.
_TEMPLATE_TOKENS = 16
# English and code in the tokenizers of today; scripts of three bytes come near 2.
_BYTES_PER_TOKEN = 4
# Text, log-probability, rank and place of a token, three times what servers send.
_BYTES_PER_ANSWER_TOKEN = 256
_LEAST_BYTES = 2**18
# Where no field of the request bounds the answer.
_UNBOUNDED_TOKENS = 2**17
# A larger count is none, and may be no float.
_MOST_TOKENS = 2**53
# Numbers, words, lists and objects that say one value of a token, bytes among them.
_VALUES_PER_ANSWER_TOKEN = 32
_LEAST_VALUES = 2**12


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Requests, and tokens of prompts and of answers."""

    n_requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.n_requests + other.n_requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Prices of a million tokens, and the most that a run may cost; None: no limit."""

    max_cost: float | None = None
    price_in: float = 0.0
    price_out: float = 0.0

    def __post_init__(self) -> None:
        if self.max_cost is not None and not 0 < self.max_cost < math.inf:
            raise InputError(f"a budget must be more than 0, got {self.max_cost}")
        for price in (self.price_in, self.price_out):
            if not 0 <= price < math.inf:
                raise InputError(f"a price must be at least 0, got {price}")
        if self.max_cost is not None and not self.has_prices:
            raise InputError(
                "a budget of money needs prices",
                hint="give the prices per million prompt tokens and per million new "
                "tokens",
            )

    @property
    def has_prices(self) -> bool:
        """True if a cost can be told."""
        return self.price_in + self.price_out > 0

    def cost(self, usage: Usage) -> float:
        """Cost in the currency of the prices."""
        prompts = self.price_in * usage.prompt_tokens
        return (prompts + self.price_out * usage.completion_tokens) / _MILLION


class Spending:
    """Usage so far, plus the upper bound of requests in flight.

    Clients of several servers may share one, since a budget belongs to a run.
    """

    def __init__(self, budget: Budget):
        self.budget = budget
        self.spent = Usage()
        self._held: list[Usage] = []
        self._lock = threading.Lock()

    def hold(self, most: Usage) -> bool:
        """Reserve a request's bound; False: wait for those in flight."""
        limit = self.budget.max_cost
        with self._lock:
            alone = self.spent + most
            if limit is not None and self.budget.cost(alone) > limit:
                used = self.spent
                raise InputError(
                    f"the budget of {limit:g} does not allow one more request "
                    f"({used.n_requests:,} sent, {used.prompt_tokens:,} + "
                    f"{used.completion_tokens:,} tokens used, "
                    f"{amount(self.budget.cost(used), 4, padded=False)} paid)",
                    hint="run the same command again with a higher --budget: answers "
                    "are kept",
                )
            if limit is not None and self.budget.cost(sum(self._held, alone)) > limit:
                return False
            self._held.append(most)
            return True

    def settle(self, most: Usage, used: Usage) -> None:
        """A request that held `most` has used `used`."""
        with self._lock:
            self._held.remove(most)
            self.spent += used


def most_usage(body: Body) -> Usage:
    """Upper bound of one request: a text has at most a token a byte, and one before."""
    n_read = _prompt_tokens(body, lambda n_bytes: n_bytes + 1)
    return Usage(1, n_read, most_tokens(body) or 0)


def about_usage(body: Body) -> Usage:
    """Estimated usage of one request with answers of the longest allowed length."""
    return Usage(1, _prompt_tokens(body, _tokens_in), most_tokens(body) or 0)


def most_bytes(body: Body) -> int:
    """Longest answer that a request can have, in bytes of JSON.

    A longer one is not read: as Python's objects it takes up to 25 times its bytes.
    """
    n_tokens, n_shown = _shown_tokens(body)
    return _LEAST_BYTES + _BYTES_PER_ANSWER_TOKEN * n_tokens * (1 + n_shown)


def most_values(body: Body) -> int:
    """Most values that the JSON of an answer can hold, its texts counted as one.

    `[],` takes three of the bytes that `most_bytes` allows, and 64 once it is read.
    """
    n_tokens, n_shown = _shown_tokens(body)
    return _LEAST_VALUES + n_tokens * (1 + _VALUES_PER_ANSWER_TOKEN * n_shown)


def used_by(answer: Answer, body: Body) -> Usage:
    """Usage as the server reports it, or as its texts show if that is more.

    The most that the request can use where the server reports none.
    """
    reported = answer.get("usage")
    reported = reported if isinstance(reported, dict) else {}

    def count(name: str, most: int, least: int) -> int:
        said = reported.get(name)
        # Servers leave out what is 0, such as the tokens of an answer that is none.
        if said is None and reported:
            said = 0
        if type(said) is not int or not 0 <= said < _MOST_TOKENS:
            said = most
        return max(said, least)

    (choice,) = answer["choices"]
    written = choice.get("text") or (choice.get("message") or {}).get("content")
    # With `echo` the prompt stands in the text, too; it is paid for as a prompt.
    n_bytes = _n_bytes(written or "")
    most = most_usage(body)
    n_written = min(_tokens_in(n_bytes), most.completion_tokens or n_bytes)
    n_read = _prompt_tokens(body, _tokens_in, of_template=0)
    return Usage(
        1,
        count("prompt_tokens", most.prompt_tokens, n_read),
        count("completion_tokens", most.completion_tokens, n_written),
    )


def _n_bytes(text: object) -> int:
    return len(str(text).encode("utf-8", "replace"))


def _tokens_in(n_bytes: int) -> int:
    return math.ceil(n_bytes / _BYTES_PER_TOKEN)


def _shown_tokens(body: Body) -> tuple[int, int]:
    """Most tokens of an answer, and the likelier ones that stand with each."""
    n_written = most_tokens(body)
    n_tokens = most_usage(body).prompt_tokens
    n_tokens += _UNBOUNDED_TOKENS if n_written is None else n_written
    asked = ("logprobs", "top_logprobs", "prompt_logprobs")
    return n_tokens, max(int(body.get(name) or 0) for name in asked)


def most_tokens(body: Body) -> int | None:
    """Most tokens of the answer; None where nothing bounds them."""
    return body.get("max_tokens", body.get("max_completion_tokens"))


def _prompt_tokens(
    body: Body, of_bytes: Callable[[int], int], *, of_template: int = _TEMPLATE_TOKENS
) -> int:
    """Tokens of a request's prompt: ids are counted, text by its bytes."""
    total = sum(
        of_bytes(_n_bytes(message.get("content"))) + of_template
        for message in body.get("messages") or ()
    )
    prompt = body.get("prompt", ())
    if isinstance(prompt, str):
        return total + of_bytes(_n_bytes(prompt))
    return total + sum(map(len, prompt))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApiEstimate:
    """Requests still to be sent, and their estimated cost.

    Attributes:
        prompt_tokens: Exact for ids, else a quarter of the bytes.
        completion_tokens: Upper bound.
        cost: At most, in the currency of the prices; None without prices.
        budget: Limit of the cost; None for none.
    """

    n_requests: int
    n_journalled: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    budget: float | None = None

    @classmethod
    def of(cls, usage: Usage, n_journalled: int, budget: Budget) -> "ApiEstimate":
        """The cost of requests with this usage."""
        return cls(
            **dataclasses.asdict(usage),
            n_journalled=n_journalled,
            cost=budget.cost(usage) if budget.has_prices else None,
            budget=budget.max_cost,
        )

    def words(self) -> str:
        """One line for `--dry-run`."""
        cost = ""
        if self.cost is not None:
            price = amount(self.cost, 4, padded=False)
            cost = f", which cost at most about {price}"
            if self.budget is not None:
                side = "within" if self.cost <= self.budget else "above"
                cost += f", {side} the budget of {amount(self.budget, 4, padded=False)}"
        requests = counted(self.n_requests, "request")
        return (
            f"{requests} to send, {self.n_journalled:,} answered "
            f"before; about {self.prompt_tokens:,} prompt tokens and at most "
            f"{self.completion_tokens:,} new ones{cost}"
        )


def estimate(
    model: ApiModel,
    path: str,
    bodies: Sequence[Body],
    *,
    journal: Journal | None = None,
    budget: Budget | None = None,
) -> ApiEstimate:
    """Estimate a call of `ApiClient.post_all`; sends nothing."""
    of_key = {request_key(model, path, body): body for body in bodies}
    to_send = [b for key, b in of_key.items() if journal is None or key not in journal]
    usage = sum(map(about_usage, to_send), Usage())
    return ApiEstimate.of(usage, len(of_key) - len(to_send), budget or Budget())


def sending_words(found: ApiEstimate, *, beside_local: bool = False) -> str:
    """For the terminal, after a dry run of scoring.

    `beside_local`: of a reference, where the model itself runs here and has no price.
    """
    priced = "Its price is not known: --price is MODEL's. " if beside_local else ""
    return (
        f"{found.words()}. {priced}Some twenty more before and after them, and one in "
        "twenty among them, check what the server can do and that its model stays the "
        "same. Nothing was sent."
    )


CONCURRENCY = 8
"""Requests that are under way at once unless the user says otherwise."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """Settings of a served model.

    Attributes:
        tokenizer: Folder with the model's tokenizer.json, whose ids are sent; None
            sends text, and the server's own tokens are scored.
        context: Tokens of a request at most, or characters without a tokenizer; None
            takes a default. Of a model directory: tokens that it reads at once.
        limits: What the run may cost, and prices.
    """

    tokenizer: Path | None = None
    context: int | None = None
    concurrency: int = CONCURRENCY
    limits: Budget = Budget()
