"""Estimated number, tokens and cost of requests, before any is sent."""

import dataclasses
from collections.abc import Mapping, Sequence

from jaxcontam.data.journal import Journal
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.budget import Budget, Usage, about_usage
from jaxcontam.scoring.api.prompts import CountedPrompts
from jaxcontam.scoring.api.request import Body, request_key

# English and code in the tokenizers of today.
_CHARACTERS_PER_TOKEN = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApiEstimate:
    """Requests still to be sent, and their estimated cost.

    Attributes:
        n_requests: Requests to send, if none fails.
        n_journalled: Requests that the journal answers.
        prompt_tokens: Tokens of their prompts: exact for ids, else a quarter of the
            bytes.
        completion_tokens: Upper bound of the tokens they generate.
        cost: At most, in the currency of the prices; None without prices.
    """

    n_requests: int
    n_journalled: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None

    def words(self) -> str:
        """One line for `--dry-run`."""
        cost = "" if self.cost is None else f", at most about {self.cost:.4g} to pay"
        return (
            f"{self.n_requests:,} requests to send, {self.n_journalled:,} answered "
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
    return _estimate(usage, len(of_key) - len(to_send), budget or Budget())


def planned_requests(
    positions: Mapping[tuple[int, ...], int], prompts: CountedPrompts, budget: Budget
) -> ApiEstimate:
    """Estimate the requests of a scoring run."""
    n_requests = sum(n // shape[-1] for shape, n in positions.items())
    total = sum(positions.values())
    n_tokens = total if prompts.ids else -(-total // _CHARACTERS_PER_TOKEN)
    # At most one token is written for each.
    return _estimate(Usage(n_requests, n_tokens, n_requests), prompts.n_held, budget)


def sending_words(found: ApiEstimate) -> str:
    """For the terminal, after a dry run of scoring."""
    return (
        f"{found.words()}. Some fifteen more, before and after them, and one in thirty "
        "among them show what the server can do, and that its model stays the same. "
        "Nothing was sent."
    )


def _estimate(usage: Usage, n_journalled: int, budget: Budget) -> ApiEstimate:
    return ApiEstimate(
        n_requests=usage.n_requests,
        n_journalled=n_journalled,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost=budget.cost(usage) if budget.has_prices else None,
    )
