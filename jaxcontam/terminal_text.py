r"""Text of files and models on terminals, pages and tables: shown, never obeyed.

A benchmark, a file's name or a server's answer may hold characters that move the
cursor, rename the window or turn the reading direction. They are printed as Python
spells them, such as `\x1b`. A line to copy quotes the real name for bash.
"""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# C0 except tab and line feed, DEL, C1, bidirectional controls (Unicode's Bidi_Control)
# and unpaired surrogates, which cannot be encoded.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff]"
)


# A spreadsheet takes a cell that begins so for a formula, and runs it; one that reads
# semicolons or tabs for commas begins a cell after each. What begins with the mark
# itself gets another one, so that taking one away undoes it.
_FORMULA = re.compile(r"\A(?=[=+\-@\t\r\n'])|(?<=[;\t\r\n])(?=[=+\-@'])")
_MARK = "'"


def cell_text(text: str) -> str:
    """Text of a CSV cell: an apostrophe before what would be taken for a formula."""
    return _FORMULA.sub(_MARK, text)


def visible(text: str) -> str:
    """The text with characters that a terminal obeys spelled out; lines stay."""
    return _OBEYED.sub(lambda found: repr(found[0])[1:-1], text)


def printable(name: str | Path) -> str:
    """A name on one line: what is no visible character is spelled out, line ends too.

    It names a file for readers. What is to be typed is `shell_line`.
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(name))


def shell_line(words: Sequence[str | Path]) -> str:
    r"""Words as bash and zsh read them: pasted, each is the very same word again.

    A word that cannot be seen whole is written in bytes, such as `$'a\xe2\x80\xaeb'`.
    """
    return " ".join(map(_quoted, map(str, words)))


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    escaped = {"\\": "\\\\", "'": "\\'"}
    return f"$'{''.join(escaped.get(c) or _in_bytes(c) for c in word)}'"


def _in_bytes(c: str) -> str:
    if c.isprintable():
        return c
    # A byte of a file's name that is no UTF-8, or half a character of a JSON file.
    is_byte = "\udc80" <= c <= "\udcff"
    data = c.encode(errors="surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def json_text(value: Any, *, indent: int | None = 1, allow_nan: bool = True) -> str:
    r"""JSON that a terminal shows: the same value, with such characters as `\u009b`.

    Half a surrogate pair, which UTF-8 cannot encode, is such a character, too.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=allow_nan)
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
