"""`jaxcontam score`: per-token log-probabilities and moments of each text."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.cli.flags import Score
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.encoding import encode_texts
from jaxcontam.errors import InputError
from jaxcontam.processes import is_first
from jaxcontam.progress import progress_bar
from jaxcontam.reports.flags import open_for
from jaxcontam.reports.report_files import make_folder, replace_bytes
from jaxcontam.scoring.run_batches import finite_scores
from jaxcontam.terminal_text import json_text, printable


def score(command: Score) -> int:
    """Score and write; returns 0."""
    texts = load_benchmark(
        command.texts,
        template=command.template,
        text_field=command.text_field,
        no_header=command.no_header,
        limit=command.limit,
    )
    if command.out.is_dir():
        raise InputError(f"{command.out}: is a folder", hint="name a file with --out")
    is_there = command.out.exists() and command.texts.exists()
    if is_there and command.out.samefile(command.texts):
        raise InputError(
            f"{command.out}: --out is the file of the texts",
            hint="name another file: its scores would overwrite the texts",
        )
    if command.out.exists() and not _is_scores(command.out):
        raise InputError(
            f"{command.out}: exists, and holds no scores",
            hint="name another file with --out, or remove it",
        )
    make_folder(command.out.parent)
    model = open_for(command, command.model)
    encoded = encode_texts(
        model.tokenizer, texts.texts, after=model.prefix_id, begins=True
    )
    has_prefix = model.prefix_id is not None
    prefix = [model.prefix_id] if has_prefix else []
    # An empty text has no token, and a row of empty lists.
    filled = [i for i, ids in enumerate(encoded) if len(ids)]
    sequences = [np.array([*prefix, *encoded[i]], np.int32) for i in filled]
    beside = command.out.with_name(command.out.name + ".store")
    scorer = model.make_scorer(
        store=command.store_in(beside),
        moments=model.has_moments,
    )

    def named(n: int) -> str:
        return f"{command.texts}: text {filled[n] + 1}: the model's log-probability"

    with finite_scores(named), progress_bar("scoring texts") as progress:
        table = scorer.token_table(sequences, progress)
    place = {i: row for row, i in enumerate(filled)}
    lines = []
    for i, (text, ids) in enumerate(zip(texts.texts, encoded, strict=True)):
        row = {"id": i, "text": text}
        if table.starts is None:
            scores_RT = table.scores[place[i]] if i in place else np.empty((4, 0))
            row |= _by_ids(model.prefix_id, ids, scores_RT)
        else:
            found = place.get(i)
            row |= _by_characters(
                np.array([]) if found is None else table.starts[found] - has_prefix,
                np.empty((1, 0)) if found is None else table.scores[found],
                is_first_scored=has_prefix or not len(ids),
            )
        lines.append(json_text(row, indent=None, allow_nan=False))
    if not is_first():
        return 0
    replace_bytes(command.out, ("\n".join(lines) + "\n").encode())
    print(f"{printable(command.out)}: {len(lines)} texts")
    for words in texts.left_out:
        print(printable(f"{texts.name}: {words}"))
    return 0


def _is_scores(path: Path) -> bool:
    """True for a file that this command wrote, which it may write again."""
    if not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8") as file:
            row = json.loads(file.readline())
    except ValueError:
        return False
    return isinstance(row, dict) and row.keys() >= {"id", "text", "logprobs"}


def _by_ids(
    prefix_id: int | None, ids: np.ndarray, scores_RT: np.ndarray
) -> dict[str, Any]:
    # Without a prefix the first token has no context and no score.
    first = [] if prefix_id is not None or not len(ids) else [None]
    names = ("logprobs", "means", "variances")
    found = zip(names, scores_RT, strict=False)
    return {
        "prefix_id": prefix_id,
        "token_ids": ids.tolist(),
        **dict.fromkeys(names),
        **{name: first + values.tolist() for name, values in found},
    }


def _by_characters(
    starts_T: np.ndarray, scores_RT: np.ndarray, *, is_first_scored: bool
) -> dict[str, Any]:
    first = not is_first_scored
    return {
        "prefix_id": None,
        "token_ids": None,
        "offsets": [0] * first + starts_T.astype(int).tolist(),
        "logprobs": [None] * first + scores_RT[0].tolist(),
        "means": None,
        "variances": None,
    }
