"""Stand-ins of public models and their sets, in the layout of `eval.known_models`."""

import json

from eval.known_models import read_table
from jaxcontam.models.checkpoint import save_checkpoint
from tests.support.labelled_rows import write_lines
from tests.support.membership_model import (
    MEMBERS,
    OTHERS,
    drawn_texts,
    fast_tokenizer,
    fresh_decoder,
    save_overfitted,
)

PLANTED = "yonatano/Contam-1.4b-dupcount-higher"
HUBBLE = "allegrolab/hubble-1b-100b_toks-perturbed-hf"
PYTHIA = "EleutherAI/pythia-2.8b"
SMALLER = "EleutherAI/pythia-70m"
COUNTS = (1, 4, 16, 64, 256)


def rows_of(model, *names):
    return [row for row in read_table() if row.model == model and row.name in names]


ROWS = [
    *rows_of(PLANTED, "mnli", "pubmedqa"),
    *rows_of(HUBBLE, "testset_munch"),
    *rows_of(HUBBLE.replace("perturbed", "standard"), "testset_munch"),
    *rows_of(PYTHIA, "WikiMIA:WikiMIA_length128"),
]


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(path, rows)


def write_mirror(folder):
    """Models that know MEMBERS by heart, one that knows nothing, and their sets."""
    for name in (PLANTED, HUBBLE, PYTHIA):
        save_overfitted(folder / name)
    for name in (HUBBLE.replace("perturbed", "standard"), SMALLER):
        save_checkpoint(fresh_decoder(), fast_tokenizer(), folder / name)
    hubble = folder / "allegrolab/testset_munch/data"
    counts = [COUNTS[i % len(COUNTS)] for i in range(len(MEMBERS))]
    for split, texts, copies in (
        ("train", MEMBERS, counts),
        ("test", OTHERS, [0] * len(OTHERS)),
    ):
        meta = [json.dumps({"orig_idx": 1, "duplicates": n}) for n in copies]
        rows = [{"text": t, "meta": m} for t, m in zip(texts, meta, strict=True)]
        write_rows(hubble / f"{split}.jsonl", rows)
    for row in ROWS[:2]:
        texts = drawn_texts(24, seed=len(row.name))
        write_rows(folder / row.set, [{"question": text} for text in texts])
    labelled = [(text, 1) for text in MEMBERS] + [(text, 0) for text in OTHERS]
    write_rows(
        folder / "swj0419/WikiMIA/data/WikiMIA_length128.jsonl",
        [{"input": text, "label": label} for text, label in labelled],
    )
    return folder
