"""GGUF models: config.json's fields, tensors under Hugging Face names, a tokenizer.

llama.cpp's converter renames tensors, and of some architectures it reorders or shifts
them; each is put back here, so that families read one layout. The facts are those of
convert_hf_to_gguf.py and llama-model.cpp.
"""

import functools
import math
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import pre_tokenizers

from jaxcontam.data.encoding import add_first, take_file
from jaxcontam.data.model_files import MOST_TOKENS, check_tokenizer_files
from jaxcontam.errors import InputError, first_line, install_hint, unknown_name
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.gguf_file import GgufFile, open_gguf

Fields = dict[str, Any]
Cut = tuple[slice, ...]

TOKENIZER = "tokenizer.json"

_EMBEDDING, _HEAD, _FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
# LLaMA 3's factors of frequencies: low and high factor, and the first context.
_LLAMA3 = 1.0, 4.0, 8192
# Experts of DeepSeek's V2 that has no groups of them, and of its V3, which has eight.
_LITE_EXPERTS, _V3_EXPERTS = 64, 256
# Layers of the models of 27 B, whose scores are scaled by width over heads.
_LARGE_GEMMA = {"gemma2": 46, "gemma3": 62}
_BESIDE = "put it into a folder of its own, with the model's tokenizer.json"
_GPT2_SPLIT, _DIGITS = "gpt-2", "digits"
# How text is split before merges, by `tokenizer.ggml.pre`, where transformers, which
# knows most names, would take GPT-2's way for all others.
_SPLITS = dict.fromkeys(("default", "gpt-2", "olmo", "mpt", "phi-2"), _GPT2_SPLIT)
_SPLITS |= dict.fromkeys(
    ("smollm", "starcoder", "refact", "command-r", "codeshell"), _DIGITS
)
# Those of tokenizers that add BOS where a file does not say, by llama.cpp's loader.
_ADD_BOS = {
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral"),
    *("midm-2.0", "lfm2", "jina-v5-nano", "tekken", "chameleon"),
}


def config_fields(path: Path) -> Fields:
    """Fields of the config.json that the file was made from, as far as it is known."""
    file = open_gguf(path)
    architecture = _architecture(file)
    if architecture not in _READERS:
        error = unknown_name("architecture", architecture, _READERS)
        raise InputError(
            f"{path}: {error}",
            hint=f"{error.hint}; of another take the model's safetensors",
        )
    try:
        fields = _READERS[architecture](_Metadata(file, architecture))
    except (KeyError, TypeError, ValueError, ArithmeticError) as e:
        raise InputError(f"{path}: its fields make no model ({first_line(e)})") from e
    # Null of one field is a way of its own, not its default.
    kept = (*(name for name, x in fields.items() if x is not None), "q_lora_rank")
    return {name: fields[name] for name in kept if name in fields}


def _architecture(file: GgufFile) -> str:
    found = file.fields.get("general.architecture")
    if not isinstance(found, str):
        raise InputError(f"{file.path}: no general.architecture (found {found!r})")
    return found


class _Metadata:
    """Fields of a file's architecture."""

    def __init__(self, file: GgufFile, architecture: str):
        self.file, self.architecture = file, architecture

    def __call__(self, key: str, default: Any = None) -> Any:
        """A field; of one value for each layer, that of all."""
        value = self.file.fields.get(f"{self.architecture}.{key}", default)
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise InputError(
                    f"{self.file.path}: {self.architecture}.{key} differs from layer "
                    "to layer, which is not read"
                )
            (value,) = set(value)
        return value

    def has(self, tensor: str) -> bool:
        """True if the file has this tensor."""
        return tensor in self.file.tensors

    @property
    def head_dim(self) -> int | None:
        """Width of a head."""
        width, heads = self("embedding_length"), self("attention.head_count")
        both = isinstance(width, int) and isinstance(heads, int) and heads > 0
        return self("attention.key_length", width // heads if both else None)


def _common(get: _Metadata) -> Fields:
    """Fields that most architectures share, under LLaMA's names."""
    if not get.has(_EMBEDDING):
        raise InputError(f"{get.file.path}: missing tensors: {_EMBEDDING}")
    tokens, n_layers = get.file.fields, get("block_count")
    # Names are made for every layer.
    if isinstance(n_layers, int) and n_layers > len(get.file.tensors):
        raise InputError(
            f"{get.file.path}: names {n_layers:,} layers and holds "
            f"{len(get.file.tensors):,} tensors"
        )
    return {
        "model_type": get.architecture,
        "vocab_size": get.file.tensors[_EMBEDDING].shape[0],
        "max_position_embeddings": get("context_length"),
        "hidden_size": get("embedding_length"),
        "num_hidden_layers": n_layers,
        "intermediate_size": get("feed_forward_length"),
        "num_attention_heads": get("attention.head_count"),
        "num_key_value_heads": get(
            "attention.head_count_kv", get("attention.head_count")
        ),
        "head_dim": get.head_dim,
        "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
        "layer_norm_eps": get("attention.layer_norm_epsilon"),
        "rope_theta": get("rope.freq_base", 10_000.0),
        "rope_scaling": _rope_scaling(get),
        "tie_word_embeddings": not get.has(_HEAD),
        "bos_token_id": tokens.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": tokens.get("tokenizer.ggml.eos_token_id"),
    }


def _rope_scaling(get: _Metadata) -> Fields | None:
    first = get("rope.scaling.original_context_length")
    if get.has(_LONG) and get.has(_SHORT):
        return {
            "rope_type": "longrope",
            "long_factor": get.file.read(_LONG).ravel().tolist(),
            "short_factor": get.file.read(_SHORT).ravel().tolist(),
            "original_max_position_embeddings": first,
        }
    if get.has(_FACTORS):
        return _llama3_scaling(get)
    kind = get("rope.scaling.type", "none")
    if kind == "none":
        return None
    scaling = {"rope_type": kind, "factor": get("rope.scaling.factor")}
    if kind == "yarn":
        scaling |= {
            "original_max_position_embeddings": first,
            "beta_fast": get("rope.scaling.yarn_beta_fast"),
            "beta_slow": get("rope.scaling.yarn_beta_slow"),
        }
    return scaling


def _llama3_scaling(get: _Metadata) -> Fields:
    """Scaling whose factors the file holds; its own four numbers it does not."""
    factors = get.file.read(_FACTORS).ravel().astype(np.float64)
    theta = float(get("rope.freq_base", 10_000.0))
    low, high, first = _LLAMA3
    factor = float(factors.max(initial=1.0))
    turns = first / (2 * np.pi * theta ** (np.arange(len(factors)) / len(factors)))
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    if not np.allclose(1 / ((1 - smooth) / factor + smooth), factors, rtol=1e-3):
        raise InputError(
            f"{get.file.path}: {_FACTORS} holds factors of an unknown rule",
            hint="take the model's safetensors",
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": first,
    }


def _llama(get: _Metadata) -> Fields:
    fields = _common(get) | {
        "attention_bias": get.has("blk.0.attn_q.bias"),
        "mlp_bias": get.has("blk.0.ffn_up.bias"),
    }
    if not get("expert_count"):
        return fields
    return fields | {
        "model_type": "mixtral",
        "num_local_experts": get("expert_count"),
        "num_experts_per_tok": get("expert_used_count"),
    }


def _granite(get: _Metadata) -> Fields:
    return _llama(get) | {
        "embedding_multiplier": get("embedding_scale"),
        "attention_multiplier": get("attention.scale"),
        "residual_multiplier": get("residual_scale"),
        "logits_scaling": get("logit_scale"),
    }


def _experts(get: _Metadata, model_type: str, *, normalised: bool) -> Fields:
    return _common(get) | {
        "model_type": model_type,
        "num_experts": get("expert_count"),
        "num_experts_per_tok": get("expert_used_count"),
        "moe_intermediate_size": get("expert_feed_forward_length"),
        "shared_expert_intermediate_size": get("expert_shared_feed_forward_length"),
        "norm_topk_prob": normalised,
    }


def _olmoe(get: _Metadata) -> Fields:
    width = get("expert_feed_forward_length", get("feed_forward_length"))
    found = _experts(get, "olmoe", normalised=False)
    return found | {"intermediate_size": width}


def _olmo(get: _Metadata) -> Fields:
    return _common(get) | {"clip_qkv": get("attention.clamp_kqv")}


def _gemma(get: _Metadata) -> Fields:
    fields = _common(get)
    is_large = get("block_count") == _LARGE_GEMMA.get(get.architecture)
    width = fields["hidden_size"] // fields["num_attention_heads"]
    return fields | {
        "model_type": {"gemma3": "gemma3_text"}.get(get.architecture, get.architecture),
        "sliding_window": get("attention.sliding_window"),
        "query_pre_attn_scalar": width if is_large else fields["head_dim"],
        "attn_logit_softcapping": get("attn_logit_softcapping"),
        "final_logit_softcapping": get("final_logit_softcapping"),
    }


def _partial(get: _Metadata, fields: Fields) -> Fields:
    """The share of a head that rotates."""
    rotated, width = get("rope.dimension_count"), get.head_dim
    share = rotated / width if rotated and width else None
    return fields | {"partial_rotary_factor": share}


def _phi3(get: _Metadata) -> Fields:
    fields = _partial(get, _common(get))
    return fields | {
        "sliding_window": get("attention.sliding_window") or None,
        "original_max_position_embeddings": get("rope.scaling.original_context_length"),
    }


def _phi2(get: _Metadata) -> Fields:
    return _partial(get, _common(get)) | {"model_type": "phi"}


def _gpt_neox(get: _Metadata) -> Fields:
    return _partial(get, _common(get)) | {
        "model_type": "gpt_neox",
        "use_parallel_residual": get("use_parallel_residual", True),
        "attention_bias": get.has("blk.0.attn_qkv.bias"),
    }


def _gpt2(get: _Metadata) -> Fields:
    fields = _common(get)
    return {
        "model_type": "gpt2",
        "n_positions": fields["max_position_embeddings"],
        "n_embd": fields["hidden_size"],
        "n_layer": fields["num_hidden_layers"],
        "n_head": fields["num_attention_heads"],
        "n_inner": fields["intermediate_size"],
        "layer_norm_epsilon": fields["layer_norm_eps"],
        **{
            name: fields[name]
            for name in (
                "vocab_size",
                "tie_word_embeddings",
                "bos_token_id",
                "eos_token_id",
            )
        },
    }


def _gpt_oss(get: _Metadata) -> Fields:
    fields = _common(get)
    if (scaling := fields["rope_scaling"]) is not None:
        # As every published config says; files have no field for it.
        scaling["truncate"] = False
    return fields | {
        "model_type": "gpt_oss",
        "sliding_window": get("attention.sliding_window"),
        "intermediate_size": get("expert_feed_forward_length"),
        "num_local_experts": get("expert_count"),
        "num_experts_per_tok": get("expert_used_count"),
    }


def _deepseek(get: _Metadata) -> Fields:
    fields, rotated = _common(get), get("rope.dimension_count")
    n_dense, n_groups = get("leading_dense_block_count", 0), get("expert_group_count")
    is_third = get.has(f"blk.{n_dense}.exp_probs_b.bias")
    n_experts = get("expert_count")
    is_known = n_experts == _V3_EXPERTS if is_third else n_experts <= _LITE_EXPERTS
    # Moonlight and Kimi K2 are V3 in all but the groups.
    if n_groups is None and not is_known:
        raise InputError(
            f"{get.file.path}: no deepseek2.expert_group_count, without which the "
            "choice of experts is unknown",
            hint="take the model's safetensors, or a file of a newer converter",
        )
    if factor := get("rope.scaling.yarn_log_multiplier"):
        both = ("mscale", "mscale_all_dim")
        fields["rope_scaling"] |= dict.fromkeys(both, round(10 * factor, 6))
    is_grouped = not is_third and (n_groups or 1) > 1
    return fields | {
        "model_type": "deepseek_v3" if is_third else "deepseek_v2",
        "topk_method": "group_limited_greedy" if is_grouped else None,
        "n_group": n_groups,
        "topk_group": get("expert_group_used_count"),
        "first_k_dense_replace": n_dense,
        "q_lora_rank": get("attention.q_lora_rank"),
        "kv_lora_rank": get("attention.kv_lora_rank"),
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": (
            get("attention.key_length_mla", get("attention.key_length")) - rotated
        ),
        "v_head_dim": get("attention.value_length_mla", get("attention.value_length")),
        "moe_intermediate_size": get("expert_feed_forward_length"),
        "n_routed_experts": n_experts,
        "num_experts_per_tok": get("expert_used_count"),
        "n_shared_experts": get("expert_shared_count"),
        "routed_scaling_factor": get("expert_weights_scale", 1.0),
        "norm_topk_prob": get("expert_weights_norm", False),
    }


_READERS: Mapping[str, Callable[[_Metadata], Fields]] = {
    "llama": _llama,
    "granite": _granite,
    "smollm3": _common,
    "qwen2": _common,
    "qwen3": _common,
    "qwen2moe": functools.partial(_experts, model_type="qwen2_moe", normalised=False),
    "qwen3moe": functools.partial(_experts, model_type="qwen3_moe", normalised=True),
    "olmo": _olmo,
    "olmo2": _common,
    "olmoe": _olmoe,
    "gemma": _gemma,
    "gemma2": _gemma,
    "gemma3": _gemma,
    "phi2": _phi2,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "gptneox": _gpt_neox,
    "gpt-oss": _gpt_oss,
    "deepseek2": _deepseek,
}

_EXPERT = re.compile(r"\.experts\.(\d+)\.")
# Ends of names whose tensor has another name or is divided in a file.
_OTHER_NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "gpt-oss": {
        ".sinks": (".sinks.weight",),
        ".down_proj": (".down_proj.weight",),
        ".down_proj_bias": (".down_proj.bias",),
        ".gate_up_proj": (".gate_proj.weight", ".up_proj.weight"),
        ".gate_up_proj_bias": (".gate_proj.bias", ".up_proj.bias"),
    },
    "deepseek2": {
        ".e_score_correction_bias": (".e_score_correction.bias",),
        # Files of older converters have it in one.
        ".kv_b_proj.weight": (".k_b_proj.weight", ".v_b_proj.weight"),
    },
}
# Tensors that hold no weight of a layer.
_NO_WEIGHTS = (_FACTORS, _LONG, _SHORT)


class GgufTensors:
    """Tensors of a file under the names that a family's safetensors have."""

    def __init__(self, path: Path, config: DecoderConfig):
        """Open a file; nothing is read yet."""
        self._file, self._config = open_gguf(path), config
        self._architecture = _architecture(self._file)
        self._places: dict[str, str] = {}
        self._pairs: dict[str, tuple[str, str]] = {}
        self.most_weights = sum(math.prod(t.shape) for t in self._file.tensors.values())

    def names(self, wanted: Collection[str]) -> list[str]:
        """Names of the tensors that are wanted; others keep their GGUF names."""
        import gguf

        known = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
        n_layers = self._config.n_layers
        names = gguf.get_tensor_name_map(known[self._architecture], n_layers)
        others = _OTHER_NAMES.get(self._architecture, {})

        def place_of(name: str) -> str | None:
            merged = _EXPERT.sub(".experts.", name)
            place = names.get_name(merged, try_suffixes=(".weight", ".bias"))
            return place if place in self._file.tensors else None

        for name in wanted:
            if (place := place_of(name)) is not None:
                self._places[name] = place
                continue
            end = next((end for end in others if name.endswith(end)), None)
            given = others[end] if end is not None else ()
            match [place_of(f"{name.removesuffix(end or '')}{one}") for one in given]:
                case [str(place)]:
                    self._places[name] = place
                case [str(first), str(second)]:
                    self._pairs[name] = first, second
        known = (*self._places.values(), *sum(self._pairs.values(), ()), *_NO_WEIGHTS)
        unused = self._file.tensors.keys() - {*known}
        return [*self._places, *self._pairs, *sorted(unused)]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape as in the family's safetensors."""
        if name in self._pairs:
            first, second = (self._file.tensors[x].shape for x in self._pairs[name])
            join = _pair_shape if self._architecture == "gpt-oss" else _kv_shape
            return join(first, second)
        place = self._places[name]
        found = self._file.tensors[place].shape
        found = found[1:] if _EXPERT.search(name) else found
        if place.endswith("ffn_gate_inp_shexp.weight") and len(found) == 1:
            found = (1, *found)
        if self._is_swapped(place):
            return (*found[:-2], *found[:-3:-1])
        return found[::-1] if self._is_transposed(place) else found

    def read(self, name: str, cut: Cut) -> np.ndarray:
        """A part of a tensor in float32."""
        if name in self._pairs:
            first, second = (self._file.read(place) for place in self._pairs[name])
            join = _in_turn if self._architecture == "gpt-oss" else _keys_and_values
            return join(first, second)[cut]
        place, config = self._places[name], self._config
        layer = place.split(".")[-2]
        if expert := _EXPERT.search(name):
            index = int(expert[1])
            return self._file.read(place, slice(index, index + 1))[0][cut]
        if self._is_transposed(place):
            return self._file.read(place).T[cut]
        if self._is_swapped(place):
            return self._file.read(place).swapaxes(-1, -2)[cut]
        if self._architecture in _PERMUTED and layer in ("attn_q", "attn_k"):
            n_heads = config.n_heads if layer == "attn_q" else config.n_kv_heads
            return _halves(self._file.read(place), n_heads)[cut]
        if self._architecture == "gptneox" and layer == "attn_qkv":
            return _by_head(self._file.read(place), config.n_heads)[cut]
        found = self._file.read(place, cut[0])[(slice(None), *cut[1:])]
        # Files hold the scale itself, the family its distance from 1.
        if self._architecture.startswith("gemma") and layer.endswith("norm"):
            found = found - 1.0
        return found.reshape([one.stop - one.start for one in cut])

    def _is_swapped(self, place: str) -> bool:
        is_kernel = place.endswith("ffn_down_exps.weight")
        return self._architecture == "gpt-oss" and is_kernel

    def _is_transposed(self, place: str) -> bool:
        layer = place.split(".")[-2]
        return (
            self._architecture == "gpt2"
            and place.endswith(".weight")
            and layer in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")
        )


# Rotations of neighbours, for which rows of queries and keys were reordered.
_PERMUTED = ("llama", "granite", "smollm3", "olmo")


def _halves(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Pairs of neighbouring rows of each head -> first halves, second halves."""
    parts = rows.reshape(n_heads, -1, 2, *rows.shape[1:])
    return parts.swapaxes(1, 2).reshape(rows.shape)


def _by_head(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """All queries, all keys, all values -> those of each head in turn."""
    parts = rows.reshape(3, n_heads, -1, *rows.shape[1:])
    return parts.swapaxes(0, 1).reshape(rows.shape)


def _in_turn(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Rows of gates, and of projections, of each expert -> columns of each in turn."""
    both = np.stack([gate, up], axis=2)
    both = both.reshape(len(gate), -1, *gate.shape[2:])
    return both.swapaxes(1, 2) if both.ndim == 3 else both


def _pair_shape(gate: tuple[int, ...], up: tuple[int, ...]) -> tuple[int, ...]:
    if gate != up or len(gate) not in (2, 3):
        return *gate, *up
    return *gate[:1], *gate[2:], 2 * gate[1]


def _keys_and_values(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Columns of each head's keys, and rows of its values -> rows of each head."""
    rows = np.concatenate([keys.swapaxes(1, 2), values], axis=1)
    return rows.reshape(-1, rows.shape[-1])


def _kv_shape(keys: tuple[int, ...], values: tuple[int, ...]) -> tuple[int, ...]:
    if len(keys) != 3 or (values[0], values[-1]) != keys[:2] or len(values) != 3:
        return *keys, *values
    return keys[0] * (keys[2] + values[1]), keys[1]


def gguf_tokenizer(path: Path) -> Any:
    """The fast tokenizer of transformers that a file's metadata describe.

    Its chat template is the file's. Without torch. A tokenizer.json in a folder with
    no other GGUF file comes first.
    """
    folder, file = path.parent, open_gguf(path)
    if (folder / TOKENIZER).is_file() and [*folder.glob("*.gguf")] == [path]:
        return _loaded(path, lambda: _of_folder(folder))
    try:
        from transformers import PreTrainedTokenizerFast
        from transformers.integrations.gguf import gguf_tokenizer_mapping as ggml
    except ImportError as e:
        raise InputError(
            f"{path}: its tokenizer needs a newer transformers ({first_line(e)})",
            hint=install_hint("gguf"),
        ) from e
    known = ggml.GGUF_TOKENIZER_MAPPING["tokenizer"]
    fields = {
        name: file.fields[f"tokenizer.{key}"]
        for key, name in known.items()
        if f"tokenizer.{key}" in file.fields
    }
    tokens = fields.get("tokens")
    if not isinstance(tokens, list):
        raise InputError(f"{path}: holds no tokenizer", hint=_BESIDE)
    if len(tokens) > MOST_TOKENS:
        raise InputError(f"{path}: {len(tokens):,} tokens (at most {MOST_TOKENS:,})")
    split = fields.get("pre_tokenizer_type", "default")
    is_bytes = fields.get("tokenizer_type") == "gpt2"
    if is_bytes and split not in {*_SPLITS, *ggml.GGUF_PRE_TOKENIZER_SPLITS}:
        raise InputError(
            f"{path}: its tokenizer splits text as {split!r}, which is unknown here",
            hint=_BESIDE,
        )
    special = {
        f"{name}_token": tokens[i]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"))
        if isinstance(i := file.fields.get(f"tokenizer.ggml.{key}_token_id"), int)
        and 0 <= i < len(tokens)
    }

    def made() -> Any:
        backend, _ = ggml.convert_gguf_tokenizer(_architecture(file), fields)
        if is_bytes and _SPLITS.get(split) == _DIGITS:
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            )
        usual = fields.get("tokenizer_type") == "llama" or split in _ADD_BOS
        adds = file.fields.get("tokenizer.ggml.add_bos_token", usual)
        if adds and "bos_token" in special:
            add_first(backend, special["bos_token"])
        loaded = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
        template = file.fields.get("tokenizer.chat_template")
        loaded.chat_template = template if isinstance(template, str) else None
        return loaded

    return _loaded(path, made)


def _of_folder(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    check_tokenizer_files(folder)
    loaded = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    take_file(loaded, folder / TOKENIZER)
    return loaded


def _loaded(path: Path, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except InputError:
        raise
    except Exception as e:  # tokenizers raises Exception itself
        raise InputError(
            f"{path}: the tokenizer does not load "
            f"({type(e).__name__}: {first_line(e)})",
            hint=_BESIDE,
        ) from e
