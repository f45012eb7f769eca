"""`lm_eval:TYPE:ARGS` as a model: built, checked, ready to make scorers."""

import functools
import hashlib
import json
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam.data.characters import CharacterTokenizer
from jaxcontam.data.encoding import Encoder, encode_texts, plain_tokenizer
from jaxcontam.data.journal import Journal
from jaxcontam.errors import InputError, first_line, unknown_name
from jaxcontam.results import ModelInfo
from jaxcontam.scoring.lm_eval_scorer import JOURNAL_NAME, LmEvalScorer, Request
from jaxcontam.scoring.opened import LM_EVAL_PREFIX, OpenModel

if TYPE_CHECKING:
    from lm_eval.api.model import LM

INSTALL = "pip install 'jaxcontam[lm-eval]'"
# What the objects themselves take where nothing says how long a text may be.
_CONTEXT = 2048
# The command line stands in reports, and a key must not.
_SECRETS = re.compile(r"(?i)key|token|secret|passw|auth|header|credential")
# Names of the harness's arguments that hold one of these words and no secret.
_NO_SECRETS = re.compile(
    r"(?i)\w*tokeni[sz]\w*|max_\w*|\w*_tokens?_(id|to_\w+)|\w*(bos|eos|pad|end)_token"
)
_SWITCHES = ("true", "false", "none")
# Where arguments name the model.
_MODEL_ARGUMENTS = ("pretrained", "model", "path")
_PROBE = "The cat sat on the mat. The dog lay by the door. "
# That begin with an id of their own each.
_PROBE_ENDS = ("It", "One", "7", "?")
# Nats between a sum and the sum of its parts, which is rounding where a model is asked
# in bfloat16; a model that forgets its context, or answers at random, is nats apart.
_CHAIN_TOLERANCE = 0.5


def open_lm_eval(word: str) -> OpenModel:
    """Build the object that `lm_eval:TYPE:ARGS` names, and check what it answers.

    TYPE and ARGS are what the harness's own command takes after `--model` and
    `--model_args`.

    Args:
        word: What the user typed.

    Raises:
        InputError: If the package is missing, the type is unknown, the object cannot be
            built, or its numbers are no log-probabilities of what is asked.
    """
    kind, _, arguments = word.removeprefix(LM_EVAL_PREFIX).partition(":")
    return opened_lm(
        _built(kind, arguments), word=f"{LM_EVAL_PREFIX}{kind}:{arguments}"
    )


def opened_lm(lm: "LM", *, word: str) -> OpenModel:
    """A model object of the harness, built by whatever means.

    Args:
        lm: The object.
        word: What reports call it; with the files of a local model its identity.

    Raises:
        InputError: If its numbers are no log-probabilities of what is asked.
    """
    from lm_eval import __version__

    tokenizer = _fast_tokenizer(lm)
    sends_ids = tokenizer is not None
    prefix_id = getattr(lm, "prefix_token_id", None) if sends_ids else None
    encoder: Encoder = CharacterTokenizer() if tokenizer is None else tokenizer
    # Where text is sent it counts characters: so many always fit.
    context = int(getattr(lm, "max_length", None) or _CONTEXT)
    fingerprint = _fingerprint(
        __version__, word, "" if tokenizer is None else tokenizer.to_str()
    )
    make = functools.partial(
        _scorer, lm, sends_ids=sends_ids, context=context, identity=fingerprint
    )
    _check(make(store=None), encoder, prefix_id, word)
    return OpenModel(
        name=_folder_name(word),
        fingerprint=fingerprint,
        tokenizer=encoder,
        prefix_id=prefix_id,
        context=context,
        info=ModelInfo(
            name=word,
            fingerprint=fingerprint,
            n_parameters=None,
            dtype="unknown",
            precision="unknown",
            context=context,
        ),
        device=None,
        checkpoint=None,
        make_scorer=make,
    )


def _built(kind: str, arguments: str) -> "LM":
    hint = "such as lm_eval:hf:pretrained=DIR"
    _refuse_secrets(arguments)
    # The package's own word about its version, in place of one about torch.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        from lm_eval import models
        from lm_eval.api.registry import get_model
    except ImportError as e:
        raise InputError(
            f"{LM_EVAL_PREFIX}{kind}: the package lm_eval is not installed",
            hint=INSTALL,
        ) from e
    if not kind:
        raise InputError(f"{LM_EVAL_PREFIX}: no type of model", hint=hint)
    try:
        build: Any = get_model(kind)
    except (ImportError, AttributeError) as e:
        raise InputError(f"{LM_EVAL_PREFIX}{kind}: {first_line(e)}") from e
    except (KeyError, ValueError) as e:
        raise unknown_name("type of lm_eval model", kind, models.MODEL_MAPPING) from e
    try:
        return build.create_from_arg_string(arguments)
    # What a constructor raises for an argument that does not suit it, of many kinds.
    except (ImportError, OSError, TypeError, ValueError, AssertionError, KeyError) as e:
        raise InputError(
            f"{LM_EVAL_PREFIX}{kind}:{arguments}: {first_line(e)}", hint=hint
        ) from e


def _refuse_secrets(arguments: str) -> None:
    for part in arguments.split(","):
        name, _, value = part.strip().partition("=")
        is_named = _SECRETS.search(name) and not _NO_SECRETS.fullmatch(name)
        if is_named and value.lower() not in _SWITCHES:
            raise InputError(
                f"{LM_EVAL_PREFIX}: {name} does not belong on the command line, which "
                "stands in the report",
                hint="lm_eval reads keys from the environment, such as OPENAI_API_KEY",
            )
        _, is_url, rest = value.partition("://")
        if is_url and ("@" in rest.partition("/")[0] or "?" in rest):
            raise InputError(
                f"{LM_EVAL_PREFIX}: {name} must hold no password and no query, as the "
                "command line stands in the report",
                hint="lm_eval reads keys from the environment, such as OPENAI_API_KEY",
            )


def _fast_tokenizer(lm: "LM") -> Any:
    """Its tokenizer without additions where ids can be sent, or None."""
    from lm_eval.api.model import TemplateLM

    backend = getattr(getattr(lm, "tokenizer", None), "backend_tokenizer", None)
    is_causal = getattr(lm, "backend", "causal") == "causal"
    if not isinstance(lm, TemplateLM) or backend is None or not is_causal:
        return None
    if lm.prefix_token_id is None:
        return None
    return plain_tokenizer(backend)


def _scorer(
    lm: "LM",
    *,
    sends_ids: bool,
    context: int,
    identity: str,
    store: Path | None,
    batch_tokens: int | None = None,
    moments: bool = False,
) -> LmEvalScorer:
    """See `MakeScorer`; the object makes batches of its own."""
    del batch_tokens
    if moments:
        raise InputError(
            "models of lm-evaluation-harness give no moments of the vocabulary",
            hint="name a model directory",
        )
    journal = None
    if store is not None:
        try:
            store.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError(f"{store}: cannot be made ({e.strerror})") from e
        journal = Journal(store / JOURNAL_NAME)
    return LmEvalScorer(
        lm, sends_ids=sends_ids, context=context, identity=identity, journal=journal
    )


def _check(
    scorer: LmEvalScorer, encoder: Encoder, prefix_id: int | None, word: str
) -> None:
    """Ask a few requests whose answers no wrong number passes.

    Numbers that belong to the place before, as some servers give, are the same for
    every continuation of one token; numbers of a cut or forgotten context, or random
    ones, do not add up.

    Raises:
        InputError: Says what is wrong.
    """
    start = () if prefix_id is None else (prefix_id,)

    def ids(text: str) -> tuple[int, ...]:
        return tuple(encode_texts(encoder, [text])[0].tolist())

    context, ends = start + ids(_PROBE), [ids(end) for end in _PROBE_ENDS]
    first, second = ends[0], ends[1]
    requests: list[Request] = [
        *((context, end[:1]) for end in ends),
        (context, first),
        (context + first, second),
        (context, first + second),
    ]
    values = [value for value, _ in scorer.ask(requests)]
    if not all(math.isfinite(value) and value <= 0 for value in values):
        raise InputError(
            f"{word}: answers are no log-probabilities (such as {values[0]!r})"
        )
    if len(set(values[: len(ends)])) == 1:
        raise InputError(
            f"{word}: the same number whatever follows a context ({values[0]:.4f})",
            hint="its numbers may belong to the token before; audit the model itself",
        )
    *_, one, other, both = values
    if abs(one + other - both) > _CHAIN_TOLERANCE:
        raise InputError(
            f"{word}: two parts of a text have {one + other:.3f} nats, the whole "
            f"{both:.3f}",
            hint="it cuts or forgets contexts, or answers at random",
        )


def _fingerprint(version: str, word: str, tokenizer: str) -> str:
    """Of the package, the word, the tokenizer, and the files of a local model.

    A name on a hub stands for itself: nothing tells that what it names was changed.
    """
    from jaxcontam.models.fingerprint import fingerprint_files

    directory = _named(word)
    files = []
    if directory is not None and Path(directory).is_dir():
        files = sorted(path for path in Path(directory).iterdir() if path.is_file())
    of_files = fingerprint_files(files, tokenizer)
    words = json.dumps([version, word, of_files])
    return "sha256:" + hashlib.sha256(words.encode()).hexdigest()


def _named(word: str) -> str | None:
    """What the arguments name as the model."""
    *_, arguments = word.split(":", 2)
    fields = dict(
        (part.partition("=")[0], part.partition("=")[2])
        for part in arguments.split(",")
    )
    return next((fields[name] for name in _MODEL_ARGUMENTS if name in fields), None)


def _folder_name(word: str) -> str:
    kind = word.removeprefix(LM_EVAL_PREFIX).partition(":")[0]
    name = Path(_named(word) or kind).name
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in name) or "lm_eval"
