"""Masked language models (BERT, RoBERTa) that make neighbours of a text, in torch.

Nothing is unpickled and no remote code runs.
"""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.model_files import check_tensor_names, check_tokenizer_files
from jaxcontam.errors import InputError, first_line
from jaxcontam.models.checkpoint import quiet_transformers, read_fast_tokenizer
from jaxcontam.models.hub import need_torch
from jaxcontam.models.weights import weight_files
from jaxcontam.terminal_text import printable

_HINT = "a folder with config.json, model.safetensors and tokenizer.json"
# Masked copies of a text that the model reads at once.
_BATCH = 32


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MaskedModel:
    """A BERT-like model in torch, in evaluation mode, and its fast tokenizer.

    `context` is the most tokens that it reads, special ones included.
    """

    name: str
    model: Any
    tokenizer: Any
    context: int

    @classmethod
    def load(cls, directory: str | Path) -> "MaskedModel":
        """Open a folder in Hugging Face layout."""
        # A name that is no folder would be asked of the hub, for most of a minute.
        if not Path(directory).is_dir():
            raise InputError(f"{directory}: no such folder", hint=_HINT)
        need_torch("a masked model")
        check_tokenizer_files(Path(directory))
        quiet_transformers()
        from transformers import AutoModelForMaskedLM
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        try:
            for path in weight_files(Path(directory)):
                check_tensor_names(path)
            model = AutoModelForMaskedLM.from_pretrained(
                directory, use_safetensors=True, trust_remote_code=False
            )
        # transformers raises many types for a folder that is none, or broken.
        except Exception as e:
            raise InputError(
                f"{directory}: cannot load a masked model "
                f"({type(e).__name__}: {first_line(e)})",
                hint=_HINT,
            ) from e
        tokenizer = read_fast_tokenizer(Path(directory))
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
        return cls(printable(Path(directory).name), model.eval(), tokenizer, context)

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
        digest = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()
        entropy = [seed, *np.frombuffer(digest, "<u4").tolist()]
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
        chosen = rng.permutation(places)[:n]
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
