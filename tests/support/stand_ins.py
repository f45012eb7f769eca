"""Small files and models under the names that pages of the documentation give them."""

import csv
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
from flax import nnx

from jaxcontam.cli.main import main
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from tests.support.membership_model import SIZES, drawn_texts, fast_tokenizer, tokenizer

NOT_RUN = {
    "needs a cloud": r"^(sky|xpk|export PROJECT)|skypilot|tpu_vm\.sh|gs://",
    "signs with a key of yours": r"ssh-keygen|sigstore|cosign|allowed_signers",
    "installs": r"pip install|python3 -m venv",
    "needs vLLM": r"\bvllm(:| serve)",
    "needs a server": r"\bapi:http",
    "needs the network": r"\b(hf|tfds):|infini-gram:|git clone|^unzip|hf download|"
    r"yonatano/|audit EleutherAI/|lm_eval --model",
    "needs several devices or hosts": r"--mesh|--distributed|--shard pod",
    "needs weights that are pickled": r"jaxcontam convert",
    "runs in the folder of a report": r"^sha256sum -c|verify \.$",
    "takes minutes to hours, and has tests of its own": r"python -m (eval|train)\.|"
    r"10\*\*6|/usr/bin/time",
    "has a test of its own": r"python examples/|--scores loss spread",
}
"""Why a line of a page is not run -> how it is known."""

_MODELS = (
    *("MODEL", "MODEL_DIR", "OLDER", "OLDER_DIR", "OLD", "OLD_DIR", "OTHER"),
    *("OTHER_DIR", "OLDER_MODEL", "pythia-160m", "DIR", *"ABCDE"),
)
_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
_N = 40
# Columns of scores of one's own, a model each.
_SCORED = ("NAME", "mine", "B", *"abc")


def _record(i, seed):
    """One record with a field for every command; the order says nothing of it."""
    first, second, third, fourth = drawn_texts(4, 1000 * seed + i, n_words=4)
    name = hashlib.sha1(f"{i}".encode()).hexdigest()[:8]
    answer = int(name, 16) % 4
    return {
        "id": name,
        "question": first,
        "choices": [one.split()[0] for one in (second, third, fourth, first)],
        "answer": answer,
        "passage": second,
        "subject": ("law", "trade")[answer % 2],
        "source": f"page {name}",
    }


def _both(i, seed):
    """A question and its answer."""
    row = _record(i, seed)
    return {"question": row["question"], "answer": row["passage"]}


def _in_blocks(i, seed):
    return _record(i, seed) | {"context": f"Passage {(37 * (i // 4)) % 101}."}


def _text(i, seed):
    text, other = drawn_texts(2, 1000 * seed + i)
    label = ("no", "yes")[i % 2]
    return {
        "text": text,
        "title": f"book {4 * seed + i % 4}",
        "source": f"site {i}",
        "label": label,
        "variants": [other],
    }


def _item_and_text(i, seed):
    return _text(i, seed) | _record(i, seed)


def _pair(i, seed):
    premise, hypothesis = drawn_texts(2, 1000 * seed + i)
    return {"premise": premise, "hypothesis": hypothesis, "label": i % 2}


def _issue(i, seed):
    return {
        "problem_statement": drawn_texts(1, 1000 * seed + i)[0],
        "file": f"src/{_record(i, seed)['id']}.py",
    }


def _labelled(i, seed):
    return {"input": drawn_texts(1, 1000 * seed + i)[0], "label": i % 2}


_RECORDS = {
    **dict.fromkeys(("benchmark", "boolq", "piqa", "mmlu", *"abc"), _record),
    **dict.fromkeys(("test", "rewritten", "held_out"), _record),
    "new": _item_and_text,
    **dict.fromkeys(("asked", "old", "texts", "ag_news", "newer_news"), _text),
    **{"gsm8k": _both, "squad": _in_blocks, "rte": _pair, "wikimia": _labelled},
    **{"swe_bench": _issue, "newer": _issue},
}


def make_desk(folder, quickstart):
    """Models and files; commands of a page run in a copy of the folder.

    `quickstart` is the folder of a finished one.
    """
    shape = llama_shape(vocab_size=tokenizer().get_vocab_size(), context=2048, **SIZES)
    reads = fast_tokenizer()
    reads.chat_template = _TEMPLATE
    for seed, name in enumerate(_MODELS):
        save_checkpoint(Decoder(shape, rngs=nnx.Rngs(seed)), reads, folder / name)
    (folder / "runs").mkdir()
    (folder / "runs/quickstart").symlink_to(quickstart)
    for name in ("curves/step-1000", "curves/step-2000", "mine/model"):
        shutil.copytree(folder / "MODEL_DIR", folder / "runs" / name)
    for seed, name in enumerate(("seen", "unseen", "texts", "lines", "old", "new")):
        _lines(folder / f"{name}.txt", drawn_texts(_N, seed))
    known = enumerate(drawn_texts(_N, 0) + drawn_texts(_N, 1))
    rows = [{"id": i, "text": text, "logprobs": [-1 - i, -2]} for i, text in known]
    _lines(folder / "scores.jsonl", map(json.dumps, rows))
    for seed, name in enumerate(_RECORDS):
        rows = [_RECORDS[name](i, seed) for i in range(_N)]
        _lines(folder / f"{name}.jsonl", map(json.dumps, rows))
        flat = [{k: v for k, v in row.items() if isinstance(v, str)} for row in rows]
        _csv(folder / f"{name}.csv", flat)
    for n, name in enumerate(("books", "old", "new", "corpus", "counts", "CORPUS")):
        (folder / name).mkdir()
        for i in range(4):
            text = " ".join(drawn_texts(60, 10 * n + i))
            (folder / name / f"{i}.txt").write_text(text)
    items, rng = [f"q{i}" for i in range(_N)], np.random.default_rng(0)
    for name, share in (("published", 6), ("rewritten", 4), ("test", 6), ("new", 4)):
        right = (rng.integers(10, size=(_N, len(_SCORED))) < share).astype(int)
        rows = [
            {"item": item} | dict(zip(_SCORED, row.tolist(), strict=True))
            for item, row in zip(items, right, strict=True)
        ]
        _csv(folder / f"{name}.csv", rows)
    for name in ("a", "b", "model"):
        sides = rng.integers(2, size=(_N, 2)).tolist()
        rows = [
            {"item": item, "published": one, "other": two}
            for item, (one, two) in zip(items, sides, strict=True)
        ]
        _csv(folder / f"{name}.csv", rows)
    texts = drawn_texts(4 * _N, 99)
    rows = [
        {
            "first_piece": texts[i],
            "second_piece": texts[i + _N],
            "generated_guided_completion": texts[i + 2 * _N],
            "generated_general_completion": texts[i + 3 * _N],
        }
        for i in range(_N)
    ]
    _csv(folder / "completions.csv", rows)
    _lines(folder / "matrix.csv", [f"{2 + i % 3},1,{i % 2}" for i in range(_N)])
    for name, model in (("results.json", "pythia-160m"), ("board.csv", "Pythia")):
        row = {"model": model, "benchmark": "boolq", "score": "0.7"}
        path = folder / name
        if path.suffix == ".json":
            path.write_text(json.dumps([row]))
        else:
            _csv(path, [row])
    (folder / "runs/mine/sets").mkdir()
    shutil.copy(folder / "boolq.jsonl", folder / "runs/mine/sets")
    return folder


def make_reports(line):
    """Make what a line reads, in the working directory, unless it is there."""
    words = line.split()
    if "annotate" in words and "runs" in words:
        words.append("runs/annotated")
    for word in words:
        path = Path(word)
        if path.exists() or not (path.name == "FOLDER" or word.startswith("runs/")):
            continue
        if "--out" in line and word == line.split("--out")[1].split()[0]:
            continue
        model = "MODEL_DIR" if path.name == "FOLDER" else "pythia-160m"
        asked = [model, "boolq.jsonl"]
        if path.name == "pilot":
            # One that found something.
            done = Path("runs/quickstart")
            asked = [f"{done / 'model'}", f"{done / 'sets/pydocs-50.txt'}"]
        assert main(["audit", *asked, "--out", word]) == 0


def _lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def _csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
