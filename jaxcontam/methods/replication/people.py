"""What people say of completions: who agrees with whom, and what then counts."""

import dataclasses

from jaxcontam.methods.replication.judges import Judgement, agreement, is_copy

ByPerson = tuple[tuple[Judgement | None, ...], ...]
"""(people, N) labels; None where a person gave none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Labels of guided completions.

    Attributes:
        labels: Each person's labels, one per completion.
        source: Where they come from, for reports.
    """

    labels: ByPerson
    source: str

    @property
    def consensus(self) -> tuple[Judgement | None, ...]:
        """See `consensus`."""
        return consensus(self.labels)

    @property
    def notes(self) -> tuple[str, ...]:
        """How far people agree, and how many completions are left out; sentences."""
        notes = []
        if len(self.labels) == 2:
            both = agreement(*self.labels)
            if both.accuracy is not None:
                kappa = ""
                if both.kappa is not None:
                    kappa = f" (Cohen's kappa {both.kappa:.2f})"
                notes.append(
                    f"two people agree on {both.accuracy:.1%} of {both.n} completions, "
                    f"copy or not{kappa}"
                )
        n_open = sum(map(_is_disputed, zip(*self.labels, strict=True)))
        if n_open:
            notes.append(
                f"{n_open} of {len(self.labels[0])} completions are left out of "
                "people's labels, for one person calls them a copy and another does not"
            )
        return tuple(notes)


def consensus(people: ByPerson) -> tuple[Judgement | None, ...]:
    """Weakest label of each completion among those given.

    None where nobody gave one, or some call it a copy and others do not.
    """
    agreed: list[Judgement | None] = []
    for labels in zip(*people, strict=True):
        if _is_disputed(labels):
            agreed.append(None)
        else:
            agreed.append(
                next((x for x in ("no", "near", "exact") if x in labels), None)
            )
    return tuple(agreed)


def _is_disputed(labels: tuple[Judgement | None, ...]) -> bool:
    return "no" in labels and any(map(is_copy, labels))
