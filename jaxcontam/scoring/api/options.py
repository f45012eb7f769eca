"""User settings for requests to a server."""

import dataclasses
from pathlib import Path

from jaxcontam.scoring.api.budget import Budget

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
        concurrency: Requests that are under way at once.
        budget: Most that the run may cost, in the currency of the prices; None is no
            limit.
        price_in: Price of a million prompt tokens.
        price_out: Price of a million tokens that the model writes.
    """

    tokenizer: Path | None = None
    context: int | None = None
    concurrency: int = CONCURRENCY
    budget: float | None = None
    price_in: float | None = None
    price_out: float | None = None

    @property
    def limits(self) -> Budget:
        """Budget and prices.

        Raises:
            InputError: If a number is out of its range, or a budget has no prices.
        """
        return Budget(
            max_cost=self.budget,
            price_in=self.price_in or 0.0,
            price_out=self.price_out or 0.0,
        )
