"""Models of this package inside lm-evaluation-harness, as its model `jaxcontam`.

`lm_eval.simple_evaluate(model="jaxcontam", model_args="pretrained=DIR", ...)`, or
`--model jaxcontam`: an entry point names this module to releases after lm_eval 0.4.13;
up to that one, import it first. The harness scores the same model, in the same
kernel, that audits score.

Texts become ids as the harness's own type `hf` makes them (lm_eval 0.4.13), with the
tokenizer's BOS and space before a text where it has them, so that its tasks give the
same numbers. Audits add neither, as no text of a training set has them inside. Of a
whole text `hf` also scores the BOS that its tokenizer adds, after another one; here it
stands once, as with `hf` and add_bos_token=False.
"""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from jaxcontam.arguments import Dtype
from jaxcontam.data.encoding import own_ids
from jaxcontam.models.checkpoint import (
    load_checkpoint,
    read_fast_tokenizer,
)
from jaxcontam.models.generation import Sampling, continuations
from jaxcontam.scoring.local import checkpoint_scorer
from jaxcontam.scoring.rows import Row, Window
from jaxcontam.scoring.scorer import Scorer


@register_model("jaxcontam")
class JaxcontamLM(TemplateLM):
    """A model directory, scored and sampled by this package."""

    def __init__(
        self,
        pretrained: str,
        dtype: Dtype = "float32",
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
    ):
        """Load a model directory or a hub name; batch sizes and device are not used.

        Batches are planned by tokens, and JAX chooses the device. The tokenizer needs a
        BOS or an EOS, which a text that stands alone is scored after.
        """
        super().__init__()
        del batch_size, max_batch_size, device
        self._checkpoint = load_checkpoint(pretrained, dtype=dtype)
        assert self._checkpoint.folder is not None
        self._tokenizer = read_fast_tokenizer(self._checkpoint.folder)
        named = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        known = [i for i in (*named, self._checkpoint.prefix_id) if i is not None]
        if not known:
            raise ValueError(f"{pretrained}: the tokenizer has neither BOS nor EOS")
        self._prefix_id = known[0]
        made = checkpoint_scorer(self._checkpoint, store=None, moments=True)
        self._scorer = _FullRows(
            made.forward,
            context=made.context,
            batch_tokens=made.batch_tokens,
            n_devices=made.n_devices,
            few_shapes=made.few_shapes,
        )

    @property
    def max_length(self) -> int:
        """Ids that are read at once; the last target is read by none."""
        return self._scorer.context

    @property
    def eot_token_id(self) -> int:
        """Put before a text that stands alone: BOS, or EOS where there is none."""
        return self._prefix_id

    @property
    def tokenizer_name(self) -> str:
        """Tells request caches of one model from those of another."""
        return self._checkpoint.fingerprint

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Ids of a text; None adds what the tokenizer adds, but no second BOS."""
        del kwargs
        if add_special_tokens is None:
            start = self._tokenizer.decode(self._prefix_id)
            add_special_tokens = not string.startswith(start)
        return self._tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[Any, list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        """Sum over each continuation, and whether each id was the likeliest."""
        del disable_tqdm, kwargs
        for _, _, own in requests:
            if not 1 <= len(own) <= self.max_length:
                raise ValueError(
                    f"a continuation must have 1 to {self.max_length} tokens, got "
                    f"{len(own)}"
                )
        sequences = [
            np.array((context + own)[-(self.max_length + 1) :], np.int32)
            for _, context, own in requests
        ]
        n_rows = self._checkpoint.config.vocab_size
        if (largest := max((ids.max() for ids in sequences), default=0)) >= n_rows:
            raise ValueError(f"a text has id {largest}, the model has {n_rows} rows")
        found = []
        for scores, (_, _, own) in zip(
            self._scorer.tokens(sequences), requests, strict=True
        ):
            logprobs, tops = scores[0, -len(own) :], scores[-1, -len(own) :]
            # The likeliest token's is computed in another way.
            is_greedy = bool((logprobs >= tops - 1e-5).all())
            found.append((float(logprobs.sum(dtype=np.float64)), is_greedy))
        return found

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-probability of whole texts, long ones in the harness's own windows."""
        parts: list[tuple[None, list[int], list[int]]] = []
        counts = []
        for request in requests:
            (text,) = request.args
            ids = np.array(self.tok_encode(text), np.int32)
            rolling = get_rolling_token_windows(
                token_list=own_ids(ids, self._prefix_id).tolist(),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            windows = list(map(make_disjoint_window, rolling))
            parts += [(None, context, own) for context, own in windows]
            counts.append(len(windows))
        sums = [value for value, _ in self._loglikelihood_tokens(parts, disable_tqdm)]
        ends = np.cumsum([0, *counts])
        return [
            float(sum(sums[start:stop])) for start, stop in itertools.pairwise(ends)
        ]

    def generate_until(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[str]:
        """Continuations of contexts up to the first of their stop strings."""
        del disable_tqdm
        texts = [""] * len(requests)
        alike: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            # (context, how), which the package's own types do not say.
            arguments: Any = request.args
            how = json.dumps(arguments[1], sort_keys=True)
            alike.setdefault(how, []).append(i)
        for words, indices in alike.items():
            how = json.loads(words)
            written = self._written([requests[i].args[0] for i in indices], how)
            for i, text in zip(indices, written, strict=True):
                texts[i] = text
        return texts

    def _written(self, contexts: Sequence[str], how: dict[str, Any]) -> list[str]:
        """Continuations that are asked for in the same way."""
        # The default is that of the harness's other model types.
        wanted = int(how.get("max_gen_toks", 256))
        temperature = float(how.get("temperature", 0.0))
        sampling = Sampling(
            n_samples=1,
            # Where nothing would be left to read, half.
            new_tokens=wanted if wanted < self.max_length else self.max_length // 2,
            temperature=0.0 if how.get("do_sample") is False else temperature,
            stop_ids=self._checkpoint.stop_ids,
        )
        prompts = [
            np.array(self.tok_encode(text) or [self._prefix_id], np.int32)
            for text in contexts
        ]
        until = how.get("until") or []
        stops = [*filter(None, [until] if isinstance(until, str) else until)]

        def decoded(ids: np.ndarray) -> str:
            return self._tokenizer.decode(ids.tolist(), skip_special_tokens=True)

        def has_ended(_: int, ids: np.ndarray) -> bool:
            text = decoded(ids)
            return any(stop in text for stop in stops)

        texts = [""] * len(contexts)
        for i, (written,) in continuations(
            self._checkpoint.decoder, prompts, sampling, has_ended=has_ended
        ):
            text = decoded(written)
            for stop in stops:
                text = text.partition(stop)[0]
            texts[i] = text
        return texts


class _FullRows(Scorer):
    """Scores up to one id more than the context: windows are the harness's."""

    def rows(self, sequences: Sequence[np.ndarray]) -> list[Row]:
        """One window a sequence."""
        return [Row(i, Window(0, len(ids), 1)) for i, ids in enumerate(sequences)]
