"""What every row of METHODS says of itself."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MethodRow:
    """What readers are told of a method: its name, its needs, its price, its sight.

    Attributes:
        name: As typed after `--tests` or `--scores`, and as it stands in reports.
        needs: What the model must expose, and the flags that it cannot do without.
        cost: Passes over the data, or answers of the model.
        finds: What it can and cannot see.
        source: Paper.
    """

    name: str
    needs: str = "log-probabilities"
    cost: str
    finds: str
    source: str
