"""Interface of every kind of model, once it is open: its facts, tokenizer, scorer."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from jaxcontam.data.encoding import Encoder
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.scorer import SequenceSums, TokenTable
from jaxcontam.scoring.shares import Division
from jaxcontam.scoring.store import ScoreStore

if TYPE_CHECKING:
    from jaxcontam.models.checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServedInfo:
    """Findings of a few requests to a server, before anything was scored.

    Attributes:
        has_bos: A token stands before texts; None where ids are sent.
        read_write_difference: Nats by which a token's log-probability when it is read
            differs from that when the model wrote it, on average.
        repeat_difference: Largest difference between two answers to one request, nats.
    """

    way: str
    has_bos: bool | None
    read_write_difference: float
    repeat_difference: float
    n_probe_requests: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The model that was scored.

    Attributes:
        n_parameters: None where the weights are not here.
        dtype: `unknown` where others run the model, like `precision`.
        attention: Kernel of a library that computed it; None: our blocks.
        served: None where the model runs here.
    """

    name: str
    fingerprint: str
    n_parameters: int | None
    dtype: str
    precision: str
    context: int | None
    attention: str | None = None
    served: ServedInfo | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """The device that scored; results are to the bit on the same one only.

    Attributes:
        n_model: Devices that one copy of the weights is divided among.
    """

    platform: str
    kind: str
    n: int
    cpu_cores: int
    n_model: int = 1


LM_EVAL_PREFIX = "lm_eval:"
"""Begins the word for a model object of lm-evaluation-harness."""
VLLM_PREFIX = "vllm:"
"""Begins the word for an engine of vLLM in this process."""


class PairSource(Protocol):
    """Scores continuations of prefixes."""

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """Score each continuation after its prefix, as `PairScorer.logprobs`."""
        ...


class SequenceScorer(Protocol):
    """Interface that methods call; `Scorer` says what each part is."""

    @property
    def context(self) -> int:
        """Ids that are read at once; longer sequences are scored in windows."""
        ...

    @property
    def store(self) -> ScoreStore | None:
        """Store of scores; None also if something else keeps them."""
        ...

    @property
    def pairs(self) -> PairSource | None:
        """Scores continuations of shared prefixes; None where the model cannot."""
        ...

    def sums(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> SequenceSums:
        """Sum each sequence, as `Scorer.sums`."""
        ...

    def token_table(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> TokenTable:
        """As `Scorer.token_table`; InputError if the model gives sums alone."""
        ...


class MakeScorer(Protocol):
    """Makes a model ready to score."""

    def __call__(
        self,
        *,
        store: Path | None,
        batch_tokens: int | None = None,
        moments: bool = False,
    ) -> SequenceScorer:
        """Make it; scores or answers are kept in the store's folder, if there is one.

        `batch_tokens` are of one device; `moments` adds means, variances and tops.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpenModel:
    """A model of any kind, ready to make scorers.

    Attributes:
        name: Part of the names of folders, so without slashes.
        fingerprint: `sha256:` of what decides the scores, as far as it is known.
        prefix_id: Id before each sequence, or None.
        device: None where others own it, as of `checkpoint`.
        given_tokenizer: That of a caller in Python, which may have a chat template.
        vocab_size: Above every id; None where ids are of no vocabulary.
        n_heads: Query heads, by which memory grows.
        store_name: Folder of scores within that of a report; "" is the report's own.
        notes: Notes for a reader, once asked; one sentence each, without a full stop.
        division: What this process scores; None where nothing can be divided.
        rereads: It can read other texts than those that it knows from a file.
    """

    name: str
    fingerprint: str
    tokenizer: Encoder
    prefix_id: int | None
    context: int
    info: ModelInfo
    device: DeviceInfo | None
    checkpoint: "Checkpoint | None"
    make_scorer: MakeScorer
    has_moments: bool = False
    vocab_size: int | None = None
    n_heads: int = 1
    store_name: str = "store"
    notes: Callable[[], tuple[str, ...]] = tuple
    division: Division | None = None
    given_tokenizer: Any = None
    rereads: bool = True

    def weights(self, purpose: str) -> "Checkpoint":
        """The weights, for what needs more than scores."""
        if self.checkpoint is None:
            raise InputError(
                f"{purpose}: needs the weights of the model, but {self.info.name} "
                "gives only log-probabilities",
                hint="name a model directory; make one from memory with "
                "save_pretrained of model and tokenizer",
            )
        return self.checkpoint


@contextlib.contextmanager
def about_reference() -> Iterator[None]:
    """Say of bad input in the block that it is the reference model's."""
    try:
        yield
    except InputError as e:
        raise InputError(f"the reference model: {e}", hint=e.hint) from e


def check_other(reference: OpenModel, model: OpenModel) -> None:
    """Refuse a reference that is the model itself."""
    is_same = reference.info.fingerprint == model.info.fingerprint
    if is_same and reference.checkpoint is not None:
        raise InputError(
            f"{reference.name}: the reference is the model itself",
            hint="name a model that cannot have seen the file",
        )


def opened_checkpoint(
    checkpoint: "Checkpoint", *, division: Division | None = None
) -> OpenModel:
    """A checkpoint as a model of any kind; `division` is what this process scores."""
    from flax import nnx

    from jaxcontam.scoring.local import checkpoint_scorer, device_info, model_info
    from jaxcontam.scoring.mesh import weights_mesh

    mesh = weights_mesh(nnx.state(checkpoint.decoder))
    division, config = division or Division(), checkpoint.config
    notes: tuple[str, ...] = ()
    if checkpoint.quantisation:
        notes = (
            f"weights of {checkpoint.name} ({checkpoint.quantisation}) were "
            "dequantised and computed with here; programs that serve such files, "
            "llama.cpp for one, round products differently",
        )
    return OpenModel(
        name=checkpoint.name,
        fingerprint=checkpoint.fingerprint,
        tokenizer=checkpoint.tokenizer,
        prefix_id=checkpoint.prefix_id,
        context=config.context,
        info=model_info(checkpoint),
        device=device_info(mesh),
        checkpoint=checkpoint,
        make_scorer=functools.partial(checkpoint_scorer, checkpoint, division=division),
        division=division,
        has_moments=True,
        vocab_size=config.vocab_size,
        n_heads=config.n_heads,
        notes=lambda: notes,
    )
