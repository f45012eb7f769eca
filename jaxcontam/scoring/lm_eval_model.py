"""`lm_eval:TYPE:ARGS` as a model: built, checked, asked by its public methods.

Text is sent: whatever an object of lm-evaluation-harness makes of it is a fixed
function of the text, so order tests stay exact. Our models inside the harness are in
`lm_eval_backend`.
"""

import functools
import hashlib
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontam.data.encoding import CharacterTokenizer, text_of
from jaxcontam.data.journal import Journal, journal_in, journal_key
from jaxcontam.errors import InputError, first_line, install_hint, unknown_name
from jaxcontam.scoring.asked import AskedScorer, Request, make_asked_scorer
from jaxcontam.scoring.opened import LM_EVAL_PREFIX, ModelInfo, OpenModel

if TYPE_CHECKING:
    from lm_eval.api.model import LM

JOURNAL_NAME = "lm_eval.jsonl"
"""Answers of the object, in the folder of scores."""

# The command line stands in reports, and a key must not.
_SECRETS = re.compile(r"(?i)key|token|secret|passw|auth|header|credential")
# Names of the harness's arguments that hold one of these words and no secret.
_NO_SECRETS = re.compile(
    r"(?i)\w*tokeni[sz]\w*|max_\w*|\w*_tokens?_(id|to_\w+)|\w*(bos|eos|pad|end)_token"
)


def open_lm_eval(word: str) -> OpenModel:
    """Build the object that `lm_eval:TYPE:ARGS` names, and check what it answers.

    TYPE and ARGS are what the harness's own command takes after `--model` and
    `--model_args`.
    """
    kind, _, arguments = word.removeprefix(LM_EVAL_PREFIX).partition(":")
    lm = _built(kind, arguments)
    return opened_lm(lm, word=f"{LM_EVAL_PREFIX}{kind}:{arguments}")


def opened_lm(lm: "LM", *, word: str) -> OpenModel:
    """A model object of the harness, however it was built."""
    from lm_eval import __version__

    # Type hf of lm_eval 0.4.13 reads requests with the same ids once, and gives the
    # wrong places' numbers where context and continuation divide them otherwise.
    if hasattr(lm, "logits_cache"):
        lm.logits_cache = False  # type: ignore[attr-defined]
    _check(lm, word)
    # In characters, of which a token has at least one: this many always fit. The
    # harness's own model types take 2,048.
    context = int(getattr(lm, "max_length", None) or 2048)
    fingerprint = _fingerprint(__version__, word)
    made: list[AskedScorer] = []

    def make_scorer(
        *, store: Path | None, batch_tokens: int | None = None, moments: bool = False
    ) -> AskedScorer:
        journal = None if store is None else journal_in(store, JOURNAL_NAME)
        ask = functools.partial(_kept_answers, lm, journal, fingerprint)
        scorer = AskedScorer(
            ask, name=word, context=context, ids=False, has_tokens=False
        )
        made.append(scorer)
        return make_asked_scorer(scorer, store=store, moments=moments)

    name = Path(_named(word) or word.removeprefix(LM_EVAL_PREFIX).split(":")[0]).name
    name = "".join(c if c.isalnum() or c in "-._" else "-" for c in name)
    return OpenModel(
        name=name or "lm_eval",
        fingerprint=fingerprint,
        tokenizer=CharacterTokenizer(),
        prefix_id=None,
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
        make_scorer=make_scorer,
        notes=lambda: tuple(note for scorer in made for note in scorer.notes),
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
            hint=install_hint("lm-eval"),
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
    # Constructors raise many kinds of errors for unsuitable arguments.
    except (ImportError, OSError, TypeError, ValueError, AssertionError, KeyError) as e:
        raise InputError(
            f"{LM_EVAL_PREFIX}{kind}:{arguments}: {first_line(e)}", hint=hint
        ) from e


def _refuse_secrets(arguments: str) -> None:
    for part in arguments.split(","):
        name, _, value = part.strip().partition("=")
        is_named = _SECRETS.search(name) and not _NO_SECRETS.fullmatch(name)
        if is_named and value.lower() not in ("true", "false", "none"):
            raise InputError(
                f"{LM_EVAL_PREFIX}: {name} does not belong on the command line, which "
                "is written to the report",
                hint="put keys into the environment, such as OPENAI_API_KEY",
            )
        _, is_url, rest = value.partition("://")
        if is_url and ("@" in rest.partition("/")[0] or "?" in rest):
            raise InputError(
                f"{LM_EVAL_PREFIX}: {name} must hold no password and no query, as the "
                "command line is written to the report",
                hint="put keys into the environment, such as OPENAI_API_KEY",
            )


def _check(lm: "LM", word: str) -> None:
    """Ask a few requests whose answers numbers of the place before do not pass."""
    probe = "The cat sat on the mat. The dog lay by the door. "
    values = _answers(lm, [(probe, end) for end in "IO7?"])
    if not all(math.isfinite(value) and value <= 0 for value in values):
        raise InputError(
            f"{word}: answers are not log-probabilities (such as {values[0]!r})"
        )
    if len(set(values)) == 1:
        raise InputError(
            f"{word}: the same number for every continuation of a context "
            f"({values[0]:.4f})",
            hint="audit the model itself: these numbers may belong to the previous "
            "token",
        )


def _kept_answers(
    lm: "LM", journal: Journal | None, identity: str, requests: Sequence[Request]
) -> list[np.ndarray]:
    """Answers of the journal, and of the object where it has none.

    A server is asked for what is missing; other objects, which batch, for all again.
    """
    from lm_eval.models.api_models import TemplateAPI

    texts = [(text_of(context), text_of(own)) for context, own in requests]
    if journal is None:
        return [np.array([value]) for value in _answers(lm, texts)]
    keys = [journal_key("lm_eval", identity, *both) for both in texts]
    missing = [i for i, key in enumerate(keys) if key not in journal]
    if missing and not isinstance(lm, TemplateAPI):
        missing = list(range(len(texts)))
    values = _answers(lm, [texts[i] for i in missing])
    found = dict(zip(missing, values, strict=True))
    # Non-finite values end the run, and are no JSON.
    if all(map(math.isfinite, values)):
        for i, value in found.items():
            journal.add(keys[i], value)
    return [
        np.array([found[i] if i in found else journal[key]])
        for i, key in enumerate(keys)
    ]


def _answers(lm: "LM", texts: Sequence[tuple[str, str]]) -> list[float]:
    """Log-probability of each (context, continuation); "" is no context."""
    from lm_eval.api.instance import Instance

    def asked(kind: str, arguments: list[tuple[str, ...]]) -> list[Any]:
        requests = [
            Instance(kind, doc={}, arguments=one, idx=0)  # type: ignore[arg-type]
            for one in arguments
        ]
        answers = list(getattr(lm, kind)(requests)) if requests else []
        if len(answers) != len(requests):
            raise InputError(
                f"{type(lm).__name__}: {len(answers)} answers to {len(requests)} "
                "requests"
            )
        return answers

    try:
        whole = [(own,) for before, own in texts if not before]
        alone = iter(asked("loglikelihood_rolling", whole))
        given = iter(asked("loglikelihood", [both for both in texts if both[0]]))
    except NotImplementedError as e:
        raise InputError(
            f"{type(lm).__name__}: gives no log-likelihoods",
            hint="use `jaxcontam replicate`, which works with chats",
        ) from e
    except Exception as e:
        # Errors of the network and of servers. Some are no OSError: those of aiohttp,
        # by which many requests are sent at once.
        if not isinstance(e, OSError) and not type(e).__module__.startswith("aiohttp"):
            raise
        hint = "run the same command again: earlier answers are kept"
        status = getattr(getattr(e, "response", None), "status_code", None)
        # A server will never accept such a request.
        if getattr(e, "status", status) in (400, 413, 422):
            most = getattr(lm, "max_length", None) or "what is sent"
            hint = (
                f"if the server's model reads fewer tokens than {most}, add "
                "max_length=N to the arguments"
            )
        raise InputError(f"{type(lm).__name__}: {first_line(e)}", hint=hint) from e
    values = [next(given if before else alone) for before, _ in texts]
    return [float(v[0] if isinstance(v, tuple) else v) for v in values]


def _fingerprint(version: str, word: str) -> str:
    """Digest of lm_eval's version, the word, and the files of a local model."""
    from jaxcontam.models.hub import fingerprint_files

    directory = _named(word)
    files = []
    if directory is not None and Path(directory).is_dir():
        files = sorted(path for path in Path(directory).iterdir() if path.is_file())
    of_files = fingerprint_files(files, "")
    words = json.dumps([version, word, of_files])
    return "sha256:" + hashlib.sha256(words.encode()).hexdigest()


def _named(word: str) -> str | None:
    """The model that the arguments name, if any."""
    *_, arguments = word.split(":", 2)
    parts = [part.partition("=") for part in arguments.split(",")]
    fields = {name: value for name, _, value in parts}
    names = ("pretrained", "model", "path")
    return next((fields[name] for name in names if name in fields), None)
