"""Where the order of a file comes from, and what its owner published of it."""

import dataclasses
from typing import Literal

Provenance = Literal[
    "published",
    "seeded",
    "released",
    "recovered",
    "declared",
    "tfds-hash",
    "unknown",
]
"""Where the order of a file comes from; see `OrderResult`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """A file whose digest its owner published before models could be trained.

    Attributes:
        file: The seed file, secrets or held-out sequences, as the command named it.
        sha256: Digest of its bytes, `sha256:...`: the commitment.
        made: Time that the file states; None where it states none.
        bits: log2 of the orders, or values, that a seed chooses from; None where what
            is committed is itself.
    """

    file: str
    sha256: str
    made: str | None = None
    bits: float | None = None
