"""Run the same commands in two checkouts and compare what they report.

    python .ci/compare_trees.py OLD NEW QUICKSTART [CASE ...]

OLD and NEW are checkouts; QUICKSTART is the folder of a finished `eval.quickstart`,
whose model and sets are the inputs. Each case prints `same`, or what differs. What was
renamed between the two, and what left, stands in the tables below.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

# What a rerun may change, and what a digest follows.
VOLATILE = {"started", "wall_seconds", "jaxcontam", "digests", "digest", "command"}
VOLATILE |= {
    "schema",
    "code",
    "key",
    "making_seconds",
    "train_seconds",
    "test_seconds",
    "cpu_seconds",
    "seconds",
    "version",
}
RELATIVE = 1e-9
_STEPS = "model/metrics.jsonl"

# A command of NEW, or all, words of its flags, and the same as OLD spells them.
FLAGS: tuple[tuple[str, str, str], ...] = (
    ("overlap", "--corpus-field", "--text-field"),
    ("audit", "--text Q:{{question}}", "--template Q:{{question}}"),
    ("", "--text", "--text-field"),
    ("audit", "--order random", "--shuffled"),
    ("audit", "--order anyway", "--score-anyway"),
    ("audit", "--order", "--seed-file"),
    (
        "audit",
        "--tests options:fixed,direction",
        "--tests options,direction --fix-answer",
    ),
    ("audit", "permutation:19", "permutation --n-orders 19"),
    ("audit", "--fields answer=answer", "--answer-field answer"),
    ("", " options=options", " --options-field options"),
    ("audit", "--fields", ""),
    (
        "membership",
        "--fields member=label document=source",
        "--label-field label --document-field source",
    ),
    ("membership", "--fields member=label", "--label-field label"),
    ("membership", "--scores loss auto", "--primary loss"),
    ("membership", "--sample", "--limit"),
    ("inflation", "--sample", "--limit"),
    ("inflation", "--references", "--reference"),
    ("replicate", "--sample", "--k"),
    ("", "--fields document=source", "--group-field source"),
    ("prove", "--statistic", "--scores"),
)
# Fields of OLD by their path, as regular expressions -> their path in NEW.
FIELDS: dict[str, str] = {}
# Fields of OLD that no result has any more, or that say something else.
LEFT: tuple[str, ...] = (
    r"/(first_tokens|n_used|stop)$",
    # Shows what stands before a hit of a .txt file too.
    r"/overlap\.json/examples/\d+/corpus$",
)

SETS = ("pydocs-10.txt", "pydocs-50.txt", "pydocs-0a.txt", "pydocs-natural.txt")
REPLICATE = "replicate {model} {rows} --task plain --text question"
INFLATION = "inflation {model} {choices} --against {others}"
MEMBERSHIP = "membership {model} --members {s10} --nonmembers {s0a}"
CASES: dict[str, str] = {
    "audit": "audit {model} {s10} {s50} {s0a} --seed 1",
    "audit refused": "audit {model} {snatural}",
    "audit anyway": "audit {model} {snatural} --order anyway",
    "audit direction": "audit {model} {s10} --tests direction",
    "audit adjacency": "audit {model} {s0a} --tests adjacency",
    "audit shuffled": "audit {model} {s10} {s0a} --order random",
    "audit old tests": "audit {model} {s10} --tests stratified,reversal,permutation",
    "audit t": "audit {model} {s10} --tests sharded_t",
    "audit cut": "audit {model} {s10} --max-example-tokens 12 --limit 48",
    "audit bfloat16": "audit {model} {s10} --dtype bfloat16 --tests direction",
    "audit reference": "audit {model} {s10} --reference {reference} --tests direction",
    "audit options": "audit {model} {choices} --tests options --fields answer=answer"
    " options=options",
    "audit groups": "audit {model} {rows} --text question --group-field source",
    "audit repeats": "audit {model} {repeats}",
    "audit released": "audit {model} {released} --order {seed_file}",
    "audit a slip": "audit {model} {s10} --tests stratifed",
    "membership": MEMBERSHIP,
    "membership alone": "membership {model} {s0a} --nonmembers {s10}",
    "membership all": f"{MEMBERSHIP} --scores all --reference {{reference}}"
    " --sample 60",
    "membership labels": "membership {model} {labelled} --fields member=label",
    "membership documents": "membership {model} {labelled} --fields member=label"
    " document=source",
    "membership unequal": "membership {model} --members {s50} --nonmembers {repeats}",
    "replicate": f"{REPLICATE} --sample 20",
    "replicate control": f"{REPLICATE} --sample 20 --control {{others}}",
    "replicate compare": f"{REPLICATE} --sample 8 --compare first_instances,cdd",
    "replicate reference": f"{REPLICATE} --sample 20 --control {{others}}"
    " --reference {reference} --fields document=source",
    "inflation": f"{INFLATION} --references {{reference}}",
    "inflation unpaired": f"{INFLATION} --unpaired --equally-hard",
    "inflation groups": f"{INFLATION} --fields document=source",
    "calibrate": "calibrate {model} {s0a} --tests direction --draws 5",
    "calibrate relabelled": "calibrate {model} {s0a} --tests stratified --draws 50",
    "prove": "prove {matrix} --boundaries 3",
    "plan": "plan --effect 0.5 --sd 4 --examples 500 --json",
    "dry run": "audit {model} {s10} --dry-run",
    "overlap": "overlap {s50} {s10}",
    "overlap rows": "overlap {s50} {rows} --corpus-field question",
    "release": "release {released} --seed-file {seed_file} --check",
    "canary": "canary {model} --secret {secrets} --held-out {held_out}",
    "audit options fixed": "audit {model} {choices} --tests options:fixed,direction"
    " --fields answer=answer options=options",
    "audit options reference": "audit {model} {choices} --tests options --reference"
    " {reference} --fields options=options",
    "audit blocks": "audit {model} {rows} --text question --block-field source"
    " --tests adjacency",
    "audit windows": "audit {model} {s10} --tests permutation:19",
    "audit template": "audit {model} {rows} --text Q:{{question}} --separator |",
    "membership few": f"{MEMBERSHIP} --scores loss zlib surp gap_k --seed 3",
    "membership beside": f"{MEMBERSHIP} --reference {{reference}} --scores loss auto",
    "membership length": f"{MEMBERSHIP} --length 8 --fpr 0.1",
    "membership k": f"{MEMBERSHIP} --k 0.4 --sample 40",
    "replicate words": f"{REPLICATE} --sample 8 --compare ts_guessing_word",
    "replicate seed": f"{REPLICATE} --sample 12 --seed 5 --new-tokens 20",
    "inflation per byte": f"{INFLATION} --per-byte --seed 4",
    "inflation limit": f"{INFLATION} --sample 30 --min-points 2",
    "overlap near": "overlap {repeats} {s0a}",
    "overlap limit": "overlap {s50} {choices} --corpus-field question --limit 20",
    "release wrong": "release {rows} --seed-file {seed_file} --check",
    "variants": "variants {model} {versions}",
    "variants drawn": "variants {model} {versions} --randomised --seed 2",
    "calibrate adjacency": "calibrate {model} {s0a} --tests adjacency --draws 3",
    "prove studentised": "prove {matrix} --statistic studentised --seed 7",
    "score": "score {model} {s10} --out scores.jsonl",
    "train": "-m train.pretrain --corpus {s50} --preset pulse"
    " --canaries {s10}=4 --out model --seed 3",
    "population": "-m train.population --corpus {s50} --sets {s10} --models 2"
    " --tiny --steps 20 --copies 0 1 --n-examples 20 --out population",
}


def fields(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves of a JSON value by their path, without what a rerun may change."""
    if isinstance(value, dict):
        items = [(k, v) for k, v in value.items() if k not in VOLATILE]
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return {path: value}
    return {
        k: v for name, one in items for k, v in fields(one, f"{path}/{name}").items()
    }


def same(one: Any, other: Any) -> bool:
    """Equal, or floats that agree to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= RELATIVE * max(abs(one), abs(other))
    return one == other


def in_new_words(found: dict[str, Any]) -> dict[str, Any]:
    """OLD's fields under NEW's names, without those that left."""
    renamed = {}
    for path, value in found.items():
        if any(re.search(pattern, path) for pattern in LEFT):
            continue
        for pattern, name in FIELDS.items():
            path = re.sub(pattern, name, path)
        renamed[path] = value
    return renamed


def written(out: Path) -> dict[str, Any]:
    """Fields of the JSON files of a folder; digests of its texts and weights."""
    found: dict[str, Any] = {}
    for path in sorted(out.rglob("*")):
        name = path.name if path.name == "report.json" else str(path.relative_to(out))
        if path.suffix == ".json":
            found |= fields(json.loads(path.read_text()), name)
        # A log of steps holds times.
        elif path.suffix in (".txt", ".jsonl", ".safetensors") and name != _STEPS:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def run(tree: Path, words: list[str], out: Path) -> tuple[int, str, dict[str, Any]]:
    """Exit code, first line of an error, and what one command wrote."""
    out.mkdir(parents=True)
    program = [] if words[0] == "-m" else ["-m", "jaxcontam"]
    done = subprocess.run(
        [sys.executable, *program, *words],
        cwd=out,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
    )
    errors = [line for line in done.stderr.splitlines() if ": error: " in line]
    return done.returncode, "".join(errors[:1]), written(out)


def inputs(work: Path, quickstart: Path, old: Path) -> dict[str, str]:
    """Files that the cases name, made from the sets of the quickstart."""
    names = {
        "s" + path.stem.rpartition("-")[2]: str(path)
        for path in (quickstart / "sets" / name for name in SETS)
    }
    texts = {name: Path(path).read_text().splitlines() for name, path in names.items()}

    def write(name: str, lines: list[str]) -> None:
        names[name] = str(work / f"{name}.jsonl")
        Path(names[name]).write_text("\n".join(lines) + "\n")

    def rows(lines: list[str]) -> list[dict[str, Any]]:
        return [
            {
                "question": line,
                "options": [line[k : k + 9] for k in (3, 9, 0, 6)],
                "answer": i % 4,
                "source": f"page {i // 3}",
            }
            for i, line in enumerate(lines[:60])
        ]

    write("rows", [json.dumps(row) for row in rows(texts["s10"])])
    write("choices", [json.dumps(row) for row in rows(texts["s50"])])
    write("others", [json.dumps(row) for row in rows(texts["s0a"])])
    versions = [
        {"text": line, "variants": [line.lower(), line.upper(), line[::-1]]}
        for line in texts["s10"][:30]
    ]
    write("versions", [json.dumps(row) for row in versions])
    labels = [(line, 1) for line in texts["s10"][:60]]
    labels += [(line, 0) for line in texts["s0a"][:60]]
    labelled = [
        {"text": line, "label": label, "source": f"{label} {i // 4}"}
        for i, (line, label) in enumerate(labels)
    ]
    write("labelled", [json.dumps(row) for row in labelled])
    # A reference is another model: here one whose weights are a little off.
    names["reference"] = str(work / "reference")
    shutil.copytree(quickstart / "model", names["reference"])
    for path in Path(names["reference"]).glob("*.safetensors"):
        rng = np.random.default_rng(0)
        noisy = {
            name: value + rng.normal(0, 0.02, value.shape).astype(value.dtype)
            for name, value in load_file(path).items()
        }
        save_file(noisy, path, {"format": "pt"})
    names["repeats"] = str(work / "repeats.txt")
    lines = [line for i, line in enumerate(texts["s0a"]) for _ in range(1 + i % 3)]
    Path(names["repeats"]).write_text("\n".join(lines[:90]) + "\n")
    matrix = [[(i * j * 7919) % 101 / 10 for j in range(1, 11)] for i in range(1, 31)]
    names["matrix"] = str(work / "matrix.csv")
    Path(names["matrix"]).write_text(
        "\n".join(",".join(map(str, row)) for row in matrix) + "\n"
    )
    for name, words in {
        "released": "release {rows} --seed-file {work}/seed.json"
        " --out {work}/released.jsonl",
        "secrets": "canary --make 3 --n-held-out 200 --secret {work}/secrets.txt"
        " --held-out {work}/held_out.txt",
    }.items():
        asked = words.format(work=work, **names).split()
        code, error, _ = run(old, asked, work / f"make {name}")
        if code:
            print(f"{name} is not made: {error}")
    return names | {
        "model": str(quickstart / "model"),
        "released": str(work / "released.jsonl"),
        "seed_file": str(work / "seed.json"),
        "secrets": str(work / "secrets.txt"),
        "held_out": str(work / "held_out.txt"),
    }


def before_words(words: str) -> str:
    """A case as OLD spells it."""
    for command, new, old in FLAGS:
        if words.startswith(command):
            words = f"{words} ".replace(f"{new} ", f"{old} ").strip()
    return words


def main() -> int:
    """Compare; returns how many cases differ."""
    old, new, quickstart = (Path(word).resolve() for word in sys.argv[1:4])
    only = sys.argv[4:]
    work = Path(tempfile.mkdtemp())
    names = inputs(work, quickstart, old)
    n_different = 0
    for i, (case, words) in enumerate(CASES.items()):
        if only and case not in only:
            continue
        asked, old_run = words.format_map(names).split(), work / f"old{i}" / "run"
        before = run(old, before_words(words).format_map(names).split(), old_run)
        after = run(new, asked, work / f"new{i}" / "run")
        expected, found = in_new_words(before[2]), in_new_words(after[2])
        wrong = [
            f"{key}: {expected.get(key)!r} -> {found.get(key)!r}"
            for key in sorted({*expected, *found})
            if not same(expected.get(key), found.get(key))
        ]
        wrong += [f"exit {before[0]} -> {after[0]}"] * (before[0] != after[0])
        wrong += [f"{before[1]!r} -> {after[1]!r}"] * (before[1] != after[1])
        n_different += bool(wrong)
        what = f"{len(after[2])} fields, exit {after[0]}"
        print(f"{case}: {'DIFFERS' if wrong else f'same ({what})'}", flush=True)
        # An error that both give is the same, and shows a case that tests nothing.
        for line in [after[1], *wrong[:12]]:
            if line:
                print(f"    {line[:160]}")
    return n_different


if __name__ == "__main__":
    sys.exit(main())
