"""Parts of a run, as flags name them: the share of a process, and the mesh of devices.

Nothing slow is imported, so that flags are read at once.
"""

import dataclasses
import re

from jaxcontam.errors import InputError
from jaxcontam.processes import process_count, process_index


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """A part of the batches; `index` is 0 to `count` - 1, as schedulers count."""

    index: int
    count: int


class ShareScored(Exception):
    """A share of the batches is scored: another run judges them, this one is over."""


def parse_share(word: str) -> Share:
    """The share that `--shard I/N` names."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", word, re.ASCII)
    if found is None or not int(found[1]) < int(found[2]):
        raise InputError(
            f"--shard must be I/N with I from 0 to N - 1 (it is {word})",
            hint="for 8 processes: 0/8 to 7/8; in an array of SLURM: "
            "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT",
        )
    return Share(int(found[1]), int(found[2]))


@dataclasses.dataclass(frozen=True, slots=True)
class MeshShape:
    """Copies of the weights (None: as many as fit), each over `fsdp` devices."""

    data: int | None = None
    fsdp: int = 1

    def __str__(self) -> str:
        data = "" if self.data is None else f"data={self.data},"
        return f"{data}fsdp={self.fsdp}"


def parse_mesh(word: str | None) -> MeshShape:
    """The shape that `--mesh` names; None is all devices with whole weights."""
    if word is None:
        return MeshShape()
    found: dict[str, int] = {}
    for part in word.split(","):
        match = re.fullmatch("(data|fsdp)=([1-9][0-9]{0,6})", part.strip())
        if match is None or match[1] in found:
            renamed = "; fsdp was called model" if "model=" in word else ""
            raise InputError(
                f"--mesh names data and fsdp with their sizes, got {word!r}",
                hint=f"such as --mesh data=4,fsdp=2; either may be left out{renamed}",
            )
        found[match[1]] = int(match[2])
    return MeshShape(**found)


def share_of_process(shape: MeshShape) -> Share | None:
    """The share of a joined process; None where it is alone or has a part of a copy."""
    if process_count() == 1 or spans_processes(shape):
        return None
    return Share(process_index(), process_count())


def spans_processes(shape: MeshShape) -> bool:
    """True if one copy of the weights is larger than a host."""
    import jax

    return shape.fsdp > jax.local_device_count()
