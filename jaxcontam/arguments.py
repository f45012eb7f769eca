"""The boundary of the Python API: arguments are of the kinds that annotations say.

A value of another kind often works and means something else: a set has no order, "no"
is true, 1.5 is rounded somewhere.
"""

import collections.abc
import dataclasses
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from jaxcontam.errors import InputError, gone, unknown_name
from jaxcontam.renamed import new_flag

Dtype = Literal["float32", "bfloat16"]
"""Matmul precision of a model."""

_F = TypeVar("_F", bound=Callable[..., Any])
_LONGEST = 60
# As a `Path` it has one slash; a drive of Windows has one letter.
_URL = re.compile(r"\w\w+:/")
# A line for a shell keeps its flags.
_PROGRAM = re.compile(r"\b(vllm serve|hf \w+|pip install|jaxcontam \w+)\b")
_FLAG_AND_VALUE = re.compile(r"(--[a-z][a-z-]*) ([^\s;]+)")
_COMMA = re.compile(r",(?=\s*\w*(?:[:,]|$))")
_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    bool: "True or False",
    str: "a text",
    Path: "a path",
    type(None): "None",
}


def public(function: _F) -> _F:
    """Refuse arguments of another kind than their annotations say.

    NumPy's scalars, and arrays or columns that hold what a sequence would, pass as the
    Python values that they hold; a text passes for a path, a list for a tuple.
    Keywords behind `**` are those of a design, which checks its fields by
    `check_fields`.
    """
    signature = inspect.signature(function)
    *_, last = signature.parameters.values()
    keywords = last.name if last.kind is last.VAR_KEYWORD else None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as e:
            for name in kwargs:
                if name not in signature.parameters:
                    known = signature.parameters
                    raise unknown_argument(function.__name__, name, known) from None
            raise InputError(f"{function.__name__}: {e}") from None
        hints = _hints(function)
        for name, value in given.arguments.items():
            if name != keywords and name in hints:
                given.arguments[name] = _checked(name, value, hints[name])
        if "seed" in given.arguments:
            check_seed(given.arguments["seed"])
        try:
            return function(*given.args, **given.kwargs)
        except InputError as e:
            # Python's traceback shows notes; a command prints the hint.
            if e.hint and not getattr(e, "__notes__", None):
                e.add_note(in_python(e.hint))
            raise

    return typing.cast(_F, call)


def in_python(hint: str) -> str:
    """A hint whose flags of ours are the keywords that they are in Python."""
    if _PROGRAM.search(hint):
        return hint
    words = hint.replace("--store none", "store=None")
    return re.sub(r"--[a-z][a-z-]*", lambda flag: keyword_of(flag[0]), words)


def keyword_of(flag: str) -> str:
    """The keyword of a flag."""
    return flag.removeprefix("--").replace("-", "_")


def check_fields(design: Any) -> None:
    """Refuse fields of a dataclass that are of another kind than they are declared."""
    for field in dataclasses.fields(design):
        value = getattr(design, field.name)
        if value is not field.default:
            # Not from annotations, which the command line changes for tyro.
            is_marked = get_origin(field.type) is Annotated
            hint = get_args(field.type)[0] if is_marked else field.type
            assert not isinstance(hint, str), "annotations of designs are not quoted"
            # The fields of a design are flags, and its other errors name these.
            found = _checked(flag_of(field.name), value, hint)
            if found is not value:
                object.__setattr__(design, field.name, found)


def check_seed(seed: int) -> None:
    """Refuse a negative seed."""
    if seed < 0:
        raise InputError(f"--seed must be at least 0, got {seed}")


def check_min_effect(min_effect: float) -> None:
    """Refuse an effect that is no positive number."""
    if not (math.isfinite(min_effect) and min_effect > 0):
        raise InputError(f"--min-effect must be positive, got {min_effect}")


def store_folder(store: str | Path | None) -> Path | None:
    """The folder that a caller names for a store; None for none."""
    if _URL.match(str(store)):
        raise InputError(
            f"--store {store}: a store is a folder, not an address",
            hint="mount the bucket, with gcsfuse for gs://, and name a folder in it",
        )
    return None if store is None else Path(store)


def check_names(kind: type, fields: Mapping[str, Any], of: str) -> None:
    """Refuse keywords of the function `of` that are no fields of a dataclass."""
    import jaxcontam

    own = inspect.signature(getattr(jaxcontam, of)).parameters.values()
    known = [one.name for one in own if one.kind != one.VAR_KEYWORD]
    known += [field.name for field in dataclasses.fields(kind)]
    for name in fields:
        if name not in known:
            raise unknown_argument(of, name, known)


def _as_keyword(found: re.Match[str]) -> str:
    name, value = keyword_of(found[1]), found[2]
    # In capitals it stands for any.
    return f"{name}={value if value.isupper() else repr(value)}"


def unknown_argument(of: str, name: str, known: Collection[str]) -> InputError:
    """An argument of a function that it has not, or not any more."""
    if (new := new_flag(of, flag_of(name))) is not None:
        return gone(name, _FLAG_AND_VALUE.sub(_as_keyword, new))
    return unknown_name(f"argument of {of}", name, known)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedFields:
    """Names of a record's fields, as `ROLE=NAME` words."""

    roles: ClassVar[tuple[str, ...]]
    fields: tuple[str, ...] = ()
    """Names of fields, as ROLE=NAME."""

    def named(self, role: str) -> str | None:
        """The field of a role; None if no word names it."""
        found: dict[str, str] = {}
        for word in self.fields:
            own, _, name = word.partition("=")
            if own not in self.roles:
                raise unknown_name("role of --fields", own, self.roles)
            if not name:
                raise InputError(f"--fields {word}: write {own}=NAME of a field")
            if own in found:
                raise InputError(f"--fields names {own} twice")
            found[own] = name
        return found.get(role)


def with_settings(
    words: Sequence[str], *, flag: str, several: Collection[str] = ()
) -> list[tuple[str, str | None]]:
    """Names, blanks or commas between, as `NAME` or `NAME:SETTING`, each once.

    A setting may be a path, and so hold a comma before what is no name. Names in
    `several` may have more settings than one.
    """
    found: dict[tuple[str, str | None], None] = {}
    parts = (part.strip() for word in words for part in _COMMA.split(word))
    for name, colon, setting in (part.partition(":") for part in parts if part):
        if colon and not setting:
            raise InputError(f"{flag} {name}: nothing follows the colon")
        own = name, setting or None
        if name not in several and any(n == name for n, _ in found.keys() - {own}):
            raise InputError(f"{flag} names {name} twice, in different ways")
        found[own] = None
    return [*found]


@functools.cache
def _hints(of: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(of)


def _checked(name: str, value: Any, hint: Any) -> Any:
    if _accepts(value, hint):
        return value
    for plain in _plain(value, hint):
        if _accepts(plain, hint):
            return plain
    items = [one for one in map(_item_hint, _options(hint)) if one is not None]
    if items and isinstance(value, list | tuple):
        for i, item in enumerate(value):
            if not _accepts([item], hint) and not _accepts((item,), hint):
                name, value, hint = f"{name}[{i}]", item, items[0]
                break
    said = f"{value!r}"
    if len(said) > _LONGEST:
        said = f"{said[:_LONGEST]}..."
    raise InputError(
        f"{name} must be {_words(hint)}, got {type(value).__name__} {said}"
    )


def _plain(value: Any, hint: Any) -> Iterator[Any]:
    import numpy as np

    if hasattr(value, "tolist") and not np.ma.is_masked(value):
        value = value.tolist()
        yield value
    if isinstance(value, str):
        yield from (Path(value), (value,))
    if isinstance(value, list | tuple):
        items = [one.item() if isinstance(one, np.generic) else one for one in value]
        yield from (items, tuple(items))


def _accepts(value: Any, hint: Any) -> bool:
    if isinstance(value, bool) and bool not in _options(hint):
        # It counts as 0 or 1 elsewhere.
        return Any in _options(hint) or object in _options(hint)
    kinds = {get_origin(one) or one for one in _options(hint)}
    if isinstance(value, str) and not {str, Any, object, Literal} & kinds:
        # Its characters are no items.
        return False
    if isinstance(value, float) and float in _options(hint):
        return math.isfinite(value)
    if isinstance(value, tuple(one for one in _options(hint) if type(one) is type)):
        return True
    if isinstance(value, tuple) and get_origin(hint) is tuple and ... in get_args(hint):
        return all(_accepts(one, get_args(hint)[0]) for one in value)
    import typeguard

    try:
        typeguard.check_type(
            value,
            hint,
            collection_check_strategy=typeguard.CollectionCheckStrategy.ALL_ITEMS,
        )
    except typeguard.TypeCheckError:
        return False
    return True


def _options(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(one for arg in get_args(hint) for one in _options(arg))
    return (hint,)


def _item_hint(hint: Any) -> Any:
    is_many = get_origin(hint) in (collections.abc.Sequence, tuple, list)
    return get_args(hint)[0] if is_many else None


def _words(hint: Any) -> str:
    options = _options(hint)
    if len(options) > 1:
        return " or ".join(dict.fromkeys(map(_words, options)))
    if hint in _KINDS:
        return _KINDS[hint]
    if get_origin(hint) is Literal:
        return " or ".join(repr(one) for one in get_args(hint))
    if (item := _item_hint(hint)) is not None:
        return f"a sequence, each {_words(item)}"
    if get_origin(hint) is collections.abc.Callable or hint is Callable:
        return "a function"
    name = getattr(hint, "__name__", str(hint))
    return "a NumPy array" if name == "ndarray" else name


def flag_of(name: str) -> str:
    """A field's flag, as it is typed."""
    return "--" + name.replace("_", "-")


def words_of(command: Any, names: Sequence[str]) -> tuple[str, ...]:
    """The flags of these fields that differ from their defaults, as they were typed."""
    words: list[str] = []
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if field.name in names and value != field.default:
            words.append(flag_of(field.name))
            if isinstance(value, tuple):
                words += map(path_word, value)
            elif value is not True:
                words.append(path_word(value))
    return tuple(words)


def path_word(value: object) -> str:
    """A value as it is typed: a path that begins as flags do, below its folder."""
    word = str(value)
    return f"./{word}" if isinstance(value, Path) and word.startswith("-") else word
