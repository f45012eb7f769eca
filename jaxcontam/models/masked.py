"""Models that make neighbours of a text, in torch: masked ones, and fillers of spans.

Nothing is unpickled and no remote code runs.
"""

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from jaxcontam.data.files import read_json_object
from jaxcontam.data.model_files import check_tensor_names, check_tokenizer_files
from jaxcontam.errors import InputError, first_line
from jaxcontam.models.checkpoint import quiet_transformers, read_fast_tokenizer
from jaxcontam.models.hub import need_torch
from jaxcontam.models.weights import weight_files
from jaxcontam.terminal_text import printable

_HINT = "a folder with config.json, model.safetensors and tokenizer.json"
# Texts that a model reads at once.
_BATCH = 32
# DetectGPT's constants: spans of two words with a word between them, a share of words
# that counts these, and the likeliest tokens of which one is drawn.
_SPAN, _BUFFER, _SHARE, _TOP_K = 2, 1, 0.3, 50
_LEAST_TOKENS = 150
# Tokens of a filled span, and of the sign before it: a longer text needs more of them.
_TOKENS_A_SPAN = 8
_TRIES = 10
_WORD = re.compile(r"\S+")


def load_neighbours(directory: str | Path) -> "MaskedModel | SpanModel":
    """Open a folder in Hugging Face layout; its config says which kind it is."""
    folder = Path(directory)
    # A name that is no folder would be asked of the hub, for most of a minute.
    if not folder.is_dir():
        raise InputError(f"{directory}: no such folder", hint=_HINT)
    need_torch("a masked model")
    check_tokenizer_files(folder)
    quiet_transformers()
    import transformers
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    config = folder / "config.json"
    fills = config.is_file() and read_json_object(config).get("is_encoder_decoder")
    kind = "AutoModelForSeq2SeqLM" if fills else "AutoModelForMaskedLM"
    try:
        for path in weight_files(folder):
            check_tensor_names(path)
        model = getattr(transformers, kind).from_pretrained(
            folder, use_safetensors=True, trust_remote_code=False
        )
    # transformers raises many types for a folder that is none, or broken.
    except Exception as e:
        raise InputError(
            f"{directory}: cannot load a masked model "
            f"({type(e).__name__}: {first_line(e)})",
            hint=_HINT,
        ) from e
    name, tokenizer = printable(folder.name), read_fast_tokenizer(folder)
    if fills:
        return _span_model(name, model.eval(), tokenizer)
    if tokenizer.mask_token_id is None:
        raise InputError(
            f"{directory}: its tokenizer has no mask token",
            hint="name a masked model, such as BERT or RoBERTa",
        )
    n_positions = model.config.max_position_embeddings
    # RoBERTa's positions start behind that of padding.
    if model.config.model_type in ("roberta", "xlm-roberta", "camembert"):
        n_positions -= 2
    context = int(min(tokenizer.model_max_length, n_positions))
    return MaskedModel(name, model.eval(), tokenizer, context)


def _drawn(text: str, seed: int) -> np.random.Generator:
    """Draws by the seed and the text alone, whatever stands beside it."""
    digest = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()
    entropy = [seed, *np.frombuffer(digest, "<u4").tolist()]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MaskedModel:
    """A BERT-like model in torch, in evaluation mode, and its fast tokenizer.

    `context` is the most tokens that it reads, special ones included.
    """

    kind: ClassVar[str] = "a masked model"
    name: str
    model: Any
    tokenizer: Any
    context: int

    def replaced(self, text: str, n: int, seed: int) -> list[str]:
        """Neighbours of a text, each with one token replaced by a likely other one.

        Places are drawn, by the seed and the text alone, and masked. A place's new
        token is the one with the highest p(candidate) / (1 - p(original)) that is not
        the original and starts or goes on a word as that does; punctuation stays. Where
        there are too few places, they are used again with the next best candidate. A
        text beyond the context is changed in its beginning; one without a word is given
        back with its last character twice.

        Source:
            Mattern et al., arXiv:2305.18462. Their places are those whose candidates
            have the highest ratios of the text; ours are drawn, which takes as many
            passes as neighbours in place of one per token.
        """
        import torch

        if not text:
            raise ValueError("an empty text has no neighbours")
        encoded = self.tokenizer(
            text,
            truncation=True,
            max_length=self.context,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            return_tensors="np",
        )
        ids_T = encoded["input_ids"][0]
        spans_T2 = encoded["offset_mapping"][0]
        is_special_T = encoded["special_tokens_mask"][0].astype(bool)
        is_word_T = np.array([any(map(str.isalnum, text[a:b])) for a, b in spans_T2])
        places = np.flatnonzero(~is_special_T & is_word_T)
        if not len(places):
            return [text + text[-1]] * n
        chosen = _drawn(text, seed).permutation(places)[:n]
        found: list[list[str]] = []
        for start in range(0, len(chosen), _BATCH):
            some = chosen[start : start + _BATCH]
            masked_BT = np.tile(ids_T, (len(some), 1))
            masked_BT[np.arange(len(some)), some] = self.tokenizer.mask_token_id
            with torch.no_grad():
                logits_BTV = self.model(input_ids=torch.tensor(masked_BT)).logits
            logits_BV = logits_BTV[torch.arange(len(some)), torch.tensor(some)]
            for place, logits_V in zip(some, logits_BV.float().numpy(), strict=True):
                first, last = spans_T2[place]
                # Some tokenizers count the space before a word as a part of it.
                first += len(text[first:last]) - len(text[first:last].lstrip())
                needed = -(-n // len(chosen))
                words = self._candidates(logits_V, int(ids_T[place]), needed)
                found.append([text[:first] + word + text[last:] for word in words])
        texts = [
            own[rank]
            for rank in range(max(map(len, found)))
            for own in found
            if rank < len(own)
        ]
        others = [other for other in texts if other and other != text]
        others = others or [text + text[-1]]
        return [others[i % len(others)] for i in range(n)]

    def _candidates(self, logits_V: np.ndarray, original: int, n: int) -> list[str]:
        """Texts of a place's likeliest tokens, best first, as the ratios are."""
        kind = _kind(self.tokenizer.convert_ids_to_tokens(original))
        special = set(self.tokenizer.all_special_ids)
        words: list[str] = []
        for candidate in np.argsort(-logits_V, kind="stable").tolist():
            if candidate == original or candidate in special:
                continue
            # Rows of the head beyond the tokenizer's words have no token.
            token = self.tokenizer.convert_ids_to_tokens(candidate)
            if token is None or _kind(token) != kind:
                continue
            word = self.tokenizer.convert_tokens_to_string([token]).strip()
            word = word.removeprefix("##")
            if any(map(str.isalnum, word)):
                words.append(word)
            if len(words) == n:
                break
        return words


def _kind(token: str) -> tuple[bool, bool]:
    """(starts a word after a space, goes on with a word) of a token."""
    return token.startswith(("\u0120", "\u2581")), token.startswith("##")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SpanModel:
    """A model in torch that fills spans, such as T5, and its fast tokenizer.

    `signs` are the ids of `<extra_id_0>` and so on, which stand for spans.
    """

    kind: ClassVar[str] = "filled spans"
    name: str
    model: Any
    tokenizer: Any
    signs: tuple[int, ...]

    def replaced(self, text: str, n: int, seed: int) -> list[str]:
        """Neighbours of a text, each with some spans of two words written anew.

        Spans are drawn by the seed and the text alone, and filled together. A span that
        the model passes over keeps its words; a neighbour that is the text is drawn
        again. A text without a word is given back with its last character twice.

        Raises:
            InputError: If the model writes nothing new in any of ten tries.

        Source:
            Mitchell et al., arXiv:2301.11305, and their code: 30 % of the words in
            spans of two, a word on each side of a span counted in, and tokens drawn
            from the likeliest 50. Theirs draws again until all spans are filled.
        """
        if not text:
            raise ValueError("an empty text has no neighbours")
        words = [word.span() for word in _WORD.finditer(text)]
        if not words:
            return [text + text[-1]] * n
        rng, found = _drawn(text, seed), list[str]()
        for _ in range(_TRIES):
            missing = min(n - len(found), _BATCH)
            spans = [self._spans(words, rng) for _ in range(missing)]
            fills = self._filled(text, spans, rng)
            made = map(_with_fills, [text] * missing, spans, fills)
            found += [other for other in made if other and other != text]
            if len(found) == n:
                break
        if not found:
            raise InputError(
                f"{self.name}: fills no span of a text ({_TRIES} tries)",
                hint="name a model that was trained to fill spans, such as t5-large",
            )
        return [found[i % len(found)] for i in range(n)]

    def _spans(
        self, words: Sequence[tuple[int, int]], rng: np.random.Generator
    ) -> list[tuple[int, int]]:
        """Beginning and end of spans in characters, in the text's order."""
        n = int(_SHARE * len(words) / (_SPAN + 2 * _BUFFER))
        # The last sign says where the last span ends.
        n, starts = min(max(n, 1), len(self.signs) - 1), list[int]()
        for start in rng.permutation(max(1, len(words) - _SPAN)).tolist():
            if all(abs(start - other) >= _SPAN + _BUFFER for other in starts):
                starts.append(start)
            if len(starts) == n:
                break
        last = len(words) - 1
        return [
            (words[i][0], words[min(i + _SPAN - 1, last)][1]) for i in sorted(starts)
        ]

    def _filled(
        self,
        text: str,
        spans: Sequence[Sequence[tuple[int, int]]],
        rng: np.random.Generator,
    ) -> list[dict[int, str]]:
        """Number of a span -> what the model writes for it, of each choice of spans."""
        import torch

        device, n_spans = self.model.device, max(map(len, spans))
        signs = {number: f"<extra_id_{number}>" for number in range(n_spans)}
        masked = [_with_fills(text, own, signs) for own in spans]
        given = self.tokenizer(masked, padding=True, return_tensors="pt")
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(int(rng.integers(2**63)))
            rows = self.model.generate(
                input_ids=given["input_ids"].to(device),
                attention_mask=given["attention_mask"].to(device),
                do_sample=True,
                top_k=_TOP_K,
                top_p=1.0,
                temperature=1.0,
                max_new_tokens=max(_LEAST_TOKENS, _TOKENS_A_SPAN * n_spans),
                eos_token_id=[self.signs[n_spans], self.tokenizer.eos_token_id],
                pad_token_id=self.tokenizer.pad_token_id,
            )
        return [self._fills(ids) for ids in rows.tolist()]

    def _fills(self, ids: Sequence[int]) -> dict[int, str]:
        """Texts between signs; one that no special token ends is cut off, and none."""
        numbers = {sign: number for number, sign in enumerate(self.signs)}
        special = {*self.tokenizer.all_special_ids, *self.signs}
        found: dict[int, str] = {}
        number, own = None, list[int]()
        for one in ids:
            if one not in special:
                own.append(one)
                continue
            if number is not None:
                found.setdefault(number, self.tokenizer.decode(own).strip())
            number, own = numbers.get(one), []
        return found


def _span_model(name: str, model: Any, tokenizer: Any) -> SpanModel:
    """The model where torch runs best, if its tokenizer has signs for spans."""
    import torch

    signs = [tokenizer.convert_tokens_to_ids(f"<extra_id_{i}>") for i in range(100)]
    known = tuple(one for one in signs if one not in (None, tokenizer.unk_token_id))
    if len(known) < 2:
        raise InputError(
            f"{name}: its tokenizer has no <extra_id_0>, <extra_id_1>",
            hint="name a model that fills spans, such as T5",
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return SpanModel(name, model.to(device), tokenizer, known)


def _with_fills(
    text: str, spans: Sequence[tuple[int, int]], fills: dict[int, str]
) -> str:
    """The text with other words for some of its spans."""
    parts, end = list[str](), 0
    for number, (first, last) in enumerate(spans):
        parts += [text[end:first], fills.get(number, text[first:last])]
        end = last
    return "".join([*parts, text[end:]])
