"""Alter one line of each of some functions and see whether a test fails.

    python .ci/mutants.py OUT.jsonl [N [SEED]]

Functions of stats, scoring and proof are drawn by the seed; in each one operator or
number is altered. The tests whose files name the module run first, then, for those that
survive, the default suite. A line of OUT.jsonl is a mutant; those that are there
already are not run again. Works on a copy of the tree, with this Python.
"""

import ast
import dataclasses
import functools
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("stats", "scoring", "proof")
_LEAST_LINES = 4
_SECONDS_FILES, _SECONDS_SUITE = 400, 1800
_OPERATORS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """A function with one altered place: bytes of its file and what they become."""

    file: str
    function: str
    line: int
    begin: int
    end: int
    new: str

    @property
    def name(self) -> str:
        """What a record is known by."""
        return f"{self.file}:{self.function}:{self.line}:{self.begin}"


def mutants(n: int, seed: int) -> list[Mutant]:
    """One mutant of each of n functions."""
    rng = random.Random(seed)
    functions = [
        (path, *found)
        for folder in FOLDERS
        for path in sorted((ROOT / "jaxcontam" / folder).rglob("*.py"))
        for found in _functions(path)
    ]
    drawn = rng.sample(functions, n)
    return [
        Mutant(str(path.relative_to(ROOT)), name, *rng.choice(places))
        for path, name, places in drawn
    ]


_Place = tuple[int, int, int, str]


def _functions(path: Path) -> Iterator[tuple[str, list[_Place]]]:
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef):
            continue
        if (node.end_lineno or 0) - node.lineno + 1 < _LEAST_LINES:
            continue
        places = [
            place
            for statement in node.body
            for inner in ast.walk(statement)
            for place in _places(inner, data, starts)
        ]
        if places:
            yield node.name, places


def _places(node: ast.AST, data: bytes, starts: list[int]) -> Iterator[_Place]:
    """Line, first and last byte, and replacement of what can be altered in a node."""

    def at(line: int | None, column: int | None) -> int:
        return starts[(line or 1) - 1] + (column or 0)

    pairs: list[tuple[ast.expr, ast.AST, ast.expr]] = []
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        pairs = list(zip(operands, node.ops, operands[1:], strict=False))
    elif isinstance(node, ast.BinOp):
        pairs = [(node.left, node.op, node.right)]
    elif isinstance(node, ast.BoolOp):
        pairs = [(node.values[0], node.op, node.values[1])]
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        begin = at(node.lineno, node.col_offset)
        new = repr(node.value + 1 if node.value in (0, 1, 2) else node.value * 1.5)
        yield node.lineno, begin, at(node.end_lineno, node.end_col_offset), new
    for left, operator, right in pairs:
        if type(operator) not in _OPERATORS:
            continue
        old, new = _OPERATORS[type(operator)]
        low = at(left.end_lineno, left.end_col_offset)
        found = data.find(old.encode(), low, at(right.lineno, right.col_offset))
        if found >= 0:
            yield left.lineno, found, found + len(old), new


def run(mutant: Mutant, tree: Path, *, suite: bool) -> dict[str, object]:
    """Alter the tree, run the tests that name the module or all, put it back."""
    path = tree / mutant.file
    data = path.read_bytes()
    path.write_bytes(data[: mutant.begin] + mutant.new.encode() + data[mutant.end :])
    try:
        line = path.read_text(encoding="utf-8").splitlines()[mutant.line - 1].strip()
        module = mutant.file.removesuffix(".py").replace("/", ".")
        files = [
            str(test.relative_to(tree))
            for test in sorted((tree / "tests").rglob("test_*.py"))
            if not suite and module in test.read_text(encoding="utf-8")
        ]
        failed = _failed(tree, files) if files or suite else None
    finally:
        path.write_bytes(data)
    if failed is not None and failed.startswith("tests/"):
        _check_passes(tree, failed.partition("::")[0])
    caught = failed is not None
    return {"name": mutant.name, "line": line, "caught": caught, "by": failed}


@functools.cache
def _check_passes(tree: Path, file: str) -> None:
    if (failed := _failed(tree, [file])) is not None:
        sys.exit(f"{failed} fails where nothing is altered")


def _failed(tree: Path, files: list[str]) -> str | None:
    """The first test that fails; None if all pass or the files take too long."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *files],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            timeout=_SECONDS_FILES if files else _SECONDS_SUITE,
        )
    except subprocess.TimeoutExpired:
        # What never ends is noticed by whoever runs the tests.
        return None if files else "the clock"
    if done.returncode in (0, 5):
        return None
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return named[1] if named else done.stdout[-200:]


def main() -> int:
    """Run what is not in the file of records yet; 1 if a mutant survived."""
    out, *more = sys.argv[1:]
    n = int(more[0]) if more else 60
    seed = int(more[1]) if more[1:] else 11
    records = Path(out)
    lines = (
        records.read_text(encoding="utf-8").splitlines() if records.is_file() else []
    )
    done = {record["name"]: record for record in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in listed.stdout.splitlines():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
        # The suite takes minutes a mutant: first all by the tests that name them.
        for suite, mutant in itertools.product((False, True), mutants(n, seed)):
            if mutant.name in done:
                continue
            record = run(mutant, tree, suite=suite)
            print(record, flush=True)
            if not record["caught"] and not suite:
                continue
            done[mutant.name] = record
            with records.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    survived = [record for record in done.values() if not record["caught"]]
    print(f"{len(done) - len(survived)} of {len(done)} caught")
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main())
