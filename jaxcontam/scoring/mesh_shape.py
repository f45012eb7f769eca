"""Shape of a mesh as the user types it, known before JAX is imported."""

import dataclasses
import re

from jaxcontam.errors import InputError

_HINT = "such as --mesh data=4,model=2; either may be left out"
_PART = re.compile(r"(data|model)=([1-9][0-9]{0,6})")


@dataclasses.dataclass(frozen=True, slots=True)
class MeshShape:
    """How many devices share rows, and how many keep parts of each weight.

    Attributes:
        data: Copies of the weights; None is all devices over `model`.
        model: Devices that one copy is divided among.
    """

    data: int | None = None
    model: int = 1

    def __str__(self) -> str:
        data = "" if self.data is None else f"data={self.data},"
        return f"{data}model={self.model}"


def parse_mesh(word: str | None) -> MeshShape:
    """The shape that `--mesh` names; None is all devices with whole weights."""
    if word is None:
        return MeshShape()
    found: dict[str, int] = {}
    for part in word.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or match[1] in found:
            raise InputError(
                f"--mesh names data and model with their sizes, got {word!r}",
                hint=_HINT,
            )
        found[match[1]] = int(match[2])
    return MeshShape(**found)
