"""Real text that every machine has: the documentation inside the Python installation.

Background documents are the docstrings and comments of the standard library's modules
and the topics of `pydoc`. Questions are made from docstrings too: which function does
this sentence describe? Docstrings that questions are made from are kept out of the
background.
"""

import ast
import dataclasses
import functools
import re
import sysconfig
import warnings
from collections import Counter
from pathlib import Path

from jaxcontam.errors import InputError

_SKIPPED_NAMES = """__pycache__ _bundled dist-packages encodings idlelib lib2to3
site-packages test tests turtledemo"""
SKIPPED = frozenset(_SKIPPED_NAMES.split())
_SENTENCE_LENGTHS = range(25, 111)
# Long modules would be most of a small background; several documents mix better.
DOCUMENT_CHARACTERS = 6_000
_FIRST_SENTENCE = re.compile(r"(.+?)[.!?](?:\s|$)")


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A sentence and the one function or class that it describes."""

    sentence: str
    answer: str

    @property
    def text(self) -> str:
        """The example as it stands in a benchmark file."""
        return f"Q: {self.sentence}? A: {self.answer}"


@dataclasses.dataclass(frozen=True, slots=True)
class PythonDocs:
    """Texts of the installation.

    Attributes:
        documents: Background texts without any question's docstring.
        questions: With sentences that occur once, and in no background document.
    """

    documents: tuple[str, ...]
    questions: tuple[Question, ...]


@functools.cache
def read_python_docs() -> PythonDocs:
    """Read the installation's documentation, which takes seconds: once a process."""
    from pydoc_data.topics import topics

    root = Path(sysconfig.get_paths()["stdlib"])
    pieces: list[list[tuple[str, Question | None]]] = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if not SKIPPED.isdisjoint(relative.parts) or relative.parts[0].startswith(
            "config-"
        ):
            continue
        source, tree = parsed(path)
        module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        pieces.append(_pieces(module, source, tree))
    found = [question for module in pieces for _, question in module if question]
    if len(found) < 100:
        raise InputError(
            f"{root}: no documented Python sources ({len(found)} docstrings)",
            hint="use a Python whose standard library has its .py files",
        )
    documents = [
        document
        for module in pieces
        for document in joined([text for text, q in module if q is None])
    ]
    for _, topic in sorted(topics.items()):
        documents += joined([topic])
    counts = Counter(question.sentence for question in found)
    background = normalised(" ".join(documents))
    questions = [
        q for q in found if counts[q.sentence] == 1 and q.sentence not in background
    ]
    return PythonDocs(tuple(documents), tuple(questions))


def parsed(path: Path) -> tuple[str, ast.Module]:
    """A module's source and statements; nothing of one that is not Python."""
    try:
        source = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return source, ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return "", ast.Module([], [])


def _pieces(
    module: str, source: str, tree: ast.Module
) -> list[tuple[str, Question | None]]:
    """Docstrings and comment blocks of a module in the order of the file."""
    placed: list[tuple[int, str, Question | None]] = []

    def visit(node: ast.AST, name: str, public: bool) -> None:
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            text = ast.get_docstring(node)
            if text:
                line = node.body[0].lineno
                question = None
                if public and not isinstance(node, ast.Module):
                    question = _question(text, name)
                placed.append((line, text, question))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = public and not child.name.startswith("_")
                visit(child, f"{name}.{child.name}", inner)

    visit(tree, module, not any(part.startswith("_") for part in module.split(".")))
    placed += [(line, text, None) for line, text in _comments(source)]
    return [
        (text, question) for _, text, question in sorted(placed, key=lambda p: p[0])
    ]


def _question(docstring: str, name: str) -> Question | None:
    match = _FIRST_SENTENCE.match(normalised(docstring.split("\n\n")[0]))
    if match is None:
        return None
    sentence = match[1].strip()
    if len(sentence) not in _SENTENCE_LENGTHS or not sentence.isascii():
        return None
    return Question(sentence, name)


def _comments(source: str) -> list[tuple[int, str]]:
    """Blocks of whole-line comments with the line that they begin on."""
    blocks: list[tuple[int, list[str]]] = []
    last = -1
    for number, line in enumerate(source.split("\n"), 1):
        stripped = line.strip()
        if not stripped.startswith("#"):
            continue
        if number != last + 1:
            blocks.append((number, []))
        blocks[-1][1].append(stripped.lstrip("#! "))
        last = number
    return [(line, "\n".join(lines)) for line, lines in blocks]


def joined(texts: list[str]) -> list[str]:
    """Texts joined into documents of a bounded size."""
    documents: list[str] = []
    for text in texts:
        room = DOCUMENT_CHARACTERS - len(text)
        if documents and len(documents[-1]) < room:
            documents[-1] += "\n\n" + text
        elif text.strip():
            documents.append(text[:DOCUMENT_CHARACTERS])
    return documents


def normalised(text: str) -> str:
    """The text in one line, single spaces between words."""
    return re.sub(r"\s+", " ", text).strip()
