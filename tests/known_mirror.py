"""Stand-ins of public models and their sets, in the layout of `eval.known_models`."""

import json

from eval.known_models import read_table
from jaxcontam.models.checkpoint import save_checkpoint
from tests.membership_model import (
    MEMBERS,
    OTHERS,
    drawn_texts,
    fast_tokenizer,
    fresh_decoder,
    save_overfitted,
)

HUBBLE = "allegrolab/hubble-1b-100b_toks-perturbed-hf"
COUNTS = (1, 4, 16, 64, 256)


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def write_mirror(folder):
    """Models that know MEMBERS by heart, in their order or one by one; their sets."""
    models = [row for row in read_table() if row.model == HUBBLE]
    for name in ("yonatano/Contam-Small", HUBBLE):
        save_overfitted(folder / name)
    standard = folder / HUBBLE.replace("perturbed", "standard")
    save_checkpoint(fresh_decoder(), fast_tokenizer(), standard)
    for row in models:
        data = folder / row.set.removeprefix("hf:") / "data"
        planted = [
            {
                "text": text,
                "meta": json.dumps({"duplicates": COUNTS[i % len(COUNTS)], "idx": i}),
            }
            for i, text in enumerate(MEMBERS)
        ]
        write_rows(data / "train.jsonl", planted)
        others = [{"text": t, "meta": json.dumps({"duplicates": 0})} for t in OTHERS]
        write_rows(data / "test.jsonl", others)
    for i, row in enumerate(r for r in read_table() if r.model.endswith("Contam-Small")):
        path = folder / row.folder / row.set
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = drawn_texts(24, seed=50 + i)
        path.write_text("".join(json.dumps({"question": t}) + "\n" for t in texts))
    return folder

