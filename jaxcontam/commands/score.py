"""`jaxcontam score`: per-token log-probabilities and moments of each text."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from jaxcontam.commands.flags import check_positive, check_store_flags
from jaxcontam.commands.progress import progress_bar
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_texts
from jaxcontam.errors import InputError
from jaxcontam.report.document import make_folder, replace_bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Score every token of each text: log-probability, and its mean and variance."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Model directory in Hugging Face layout, or a hub name such as org/name."""
    texts: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TEXTS")]
    """File of texts: .jsonl, .json, .csv, .tsv or .txt; by default the raw line."""
    out: Path
    """File to write, one JSON row a text."""
    template: str | None = None
    """Text of an example, with fields in braces."""
    text_field: str | None = None
    """Field that is the text."""
    limit: int | None = None
    """Take the first so many texts."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the operands of matrix products; bfloat16 is faster, and not as exact."""
    batch_tokens: int | None = None
    """Tokens a batch (default: by device)."""
    store: Path | None = None
    """Folder of scores, from which a rerun goes on (default: OUT.store)."""
    no_store: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep no scores."""

    def __post_init__(self) -> None:
        check_positive(self, "batch_tokens", "limit")
        check_store_flags(self.store, self.no_store)

    def run(self) -> int:
        """Score and write; returns 0."""
        texts = load_benchmark(
            self.texts,
            template=self.template,
            text_field=self.text_field,
            limit=self.limit,
        )
        if self.out.is_dir():
            raise InputError(f"{self.out}: is a folder", hint="--out names a file")
        if self.out.exists() and self.out.samefile(self.texts):
            raise InputError(
                f"{self.out}: --out is the file of the texts",
                hint="its scores would take the place of the texts",
            )
        make_folder(self.out.parent)
        # JAX and transformers are imported once the input is known to be good.
        from jaxcontam.models.checkpoint import load_checkpoint
        from jaxcontam.scoring.compiled import keep_compiled
        from jaxcontam.scoring.local import checkpoint_scorer
        from jaxcontam.scoring.scorer import NonFiniteScoreError

        keep_compiled()
        checkpoint = load_checkpoint(self.model, dtype=self.dtype)
        encoded = encode_texts(checkpoint.tokenizer, texts.texts)
        has_prefix = checkpoint.prefix_id is not None
        prefix = [checkpoint.prefix_id] if has_prefix else []
        # An empty text has no token, and a row of empty lists.
        filled = [i for i, ids in enumerate(encoded) if len(ids)]
        sequences = [np.array([*prefix, *encoded[i]], np.int32) for i in filled]
        beside = self.out.with_name(self.out.name + ".store")
        scorer = checkpoint_scorer(
            checkpoint,
            store=None if self.no_store else self.store or beside,
            batch_tokens=self.batch_tokens,
            moments=True,
        )
        try:
            with progress_bar("scoring texts") as progress:
                found = scorer.tokens(sequences, progress)
        except NonFiniteScoreError as e:
            raise InputError(
                f"{self.texts}: text {filled[e.sequence] + 1}: the model's "
                "log-probability is not finite",
                hint="check the checkpoint: its weights may hold NaN or be truncated",
            ) from e
        scores = dict(zip(filled, found, strict=True))
        nothing = np.empty((3, 0))
        lines = []
        for i, (text, ids) in enumerate(zip(texts.texts, encoded, strict=True)):
            # Without a prefix the first token has no context and no score.
            first: list[float | None] = [] if has_prefix or not len(ids) else [None]
            row = {
                "id": i,
                "text": text,
                "prefix_id": checkpoint.prefix_id,
                "token_ids": ids.tolist(),
                **{
                    name: first + values.tolist()
                    for name, values in zip(
                        ("logprobs", "means", "variances"),
                        scores.get(i, nothing)[:3],
                        strict=True,
                    )
                },
            }
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False))
        replace_bytes(self.out, ("\n".join(lines) + "\n").encode())
        print(f"{self.out}: {len(lines)} texts")
        return 0
