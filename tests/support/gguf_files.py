"""GGUF files of small models, laid out as llama.cpp's converter does."""

import gguf
import numpy as np
from safetensors.numpy import load_file, save_file

from tests.support.family_files import CHOSEN, EXPERTS, FIRST, LONG, SHARED

KIND = gguf.GGMLQuantizationType
SIZES = dict(
    vocab_size=64,
    hidden_size=32,
    max_position_embeddings=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=64,
    rms_norm_eps=1e-5,
    rope_theta=7e3,
)
WHOLE = SIZES | dict(num_key_value_heads=4, head_dim=8)
LAYER_NORM = WHOLE | dict(layer_norm_eps=1e-4)
WINDOW = dict(sliding_window=5)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
LLAMA3 |= dict(original_max_position_embeddings=8192)
CASES = {
    "llama": ("llama", SIZES | dict(rope_scaling=LLAMA3, rope_theta=5e5)),
    "tied llama": (
        "llama",
        SIZES
        | dict(tie_word_embeddings=True, attention_bias=True)
        | dict(rope_scaling=dict(rope_type="linear", factor=4.0)),
    ),
    "mixtral": ("llama", SIZES | CHOSEN | dict(num_local_experts=3)),
    "granite": (
        "granite",
        SIZES
        | dict(embedding_multiplier=12.0, attention_multiplier=0.25)
        | dict(residual_multiplier=0.5, logits_scaling=16.0),
    ),
    "smollm3": ("smollm3", SIZES | dict(tie_word_embeddings=False)),
    "qwen2": ("qwen2", SIZES),
    "qwen3": ("qwen3", SIZES | dict(tie_word_embeddings=True)),
    "qwen2_moe": (
        "qwen2moe",
        SIZES
        | SHARED
        | dict(moe_intermediate_size=32)
        | dict(shared_expert_intermediate_size=64),
    ),
    "qwen3_moe": (
        "qwen3moe",
        SIZES | EXPERTS | dict(moe_intermediate_size=32, norm_topk_prob=True),
    ),
    "olmo": ("olmo", WHOLE | dict(clip_qkv=8.0)),
    "olmo2": ("olmo2", SIZES),
    "olmoe": ("olmoe", WHOLE | CHOSEN | dict(num_experts=3)),
    "gemma": ("gemma", SIZES),
    "gemma2": (
        "gemma2",
        SIZES
        | WINDOW
        | dict(query_pre_attn_scalar=16, final_logit_softcapping=3.0)
        | dict(attn_logit_softcapping=20.0),
    ),
    "gemma3_text": ("gemma3", SIZES | WINDOW | dict(query_pre_attn_scalar=16)),
    "phi": ("phi2", LAYER_NORM | dict(partial_rotary_factor=0.5)),
    "phi3": (
        "phi3",
        WHOLE
        | WINDOW
        | FIRST
        | dict(rope_scaling=LONG | dict(short_factor=[1.0] * 4, long_factor=[2.0] * 4)),
    ),
    "gpt_neox": (
        "gptneox",
        LAYER_NORM | dict(partial_rotary_factor=0.5, use_parallel_residual=False),
    ),
    "gpt2": (
        "gpt2",
        dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_inner=64)
        | dict(n_positions=32, layer_norm_epsilon=1e-4),
    ),
}
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8)
LATENT = SIZES | dict(num_key_value_heads=4, kv_lora_rank=24, qk_nope_head_dim=12)
LATENT |= dict(qk_rope_head_dim=8, v_head_dim=16, moe_intermediate_size=32)
LATENT |= dict(n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1)
LATENT |= dict(first_k_dense_replace=1, routed_scaling_factor=1.5)
LATENT |= dict(rope_scaling=YARN | dict(mscale=0.7, mscale_all_dim=0.7))
CASES |= {
    "gpt_oss": (
        "gpt-oss",
        SIZES
        | WINDOW
        | dict(num_local_experts=3, num_experts_per_tok=2)
        | dict(rope_scaling=YARN | dict(truncate=False)),
    ),
    "deepseek_v2": ("deepseek2", LATENT | dict(q_lora_rank=None)),
    "deepseek_v3": (
        "deepseek2",
        LATENT | dict(q_lora_rank=20, n_group=2, topk_group=1, norm_topk_prob=True),
    ),
}
DIVIDED = ("gpt_oss", "deepseek_v2", "deepseek_v3")
"""Architecture of a GGUF file, and config.json's fields, by a name of the case."""

# Key of llama.cpp, after the architecture's name -> field of config.json.
_KEYS = {
    "context_length": ("max_position_embeddings", "n_positions"),
    "embedding_length": ("hidden_size", "n_embd"),
    "block_count": ("num_hidden_layers", "n_layer"),
    "feed_forward_length": ("intermediate_size", "n_inner"),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon"),
    "attention.sliding_window": ("sliding_window",),
    "attention.clamp_kqv": ("clip_qkv",),
    "attention.scale": ("attention_multiplier",),
    "embedding_scale": ("embedding_multiplier",),
    "residual_scale": ("residual_multiplier",),
    "logit_scale": ("logits_scaling",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "expert_count": ("num_experts", "num_local_experts", "n_routed_experts"),
    "expert_shared_count": ("n_shared_experts",),
    "expert_group_count": ("n_group",),
    "expert_group_used_count": ("topk_group",),
    "expert_weights_scale": ("routed_scaling_factor",),
    "expert_weights_norm": ("norm_topk_prob",),
    "leading_dense_block_count": ("first_k_dense_replace",),
    "attention.q_lora_rank": ("q_lora_rank",),
    "attention.kv_lora_rank": ("kv_lora_rank",),
    "attention.value_length_mla": ("v_head_dim",),
    "rope.dimension_count": ("qk_rope_head_dim",),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "rope.freq_base": ("rope_theta",),
    "use_parallel_residual": ("use_parallel_residual",),
    "rope.scaling.original_context_length": ("original_max_position_embeddings",),
}

# Kernels of GPT-2, which its own files hold as [inputs, outputs].
_TURNED = ("attn_qkv", "attn_output", "ffn_up", "ffn_down")


def write_gguf(path, case, folder, *, kind=KIND.Q8_0, fields=None):
    """Write the weights of a model's folder into a file, and what it then holds back.

    Weights of two axes are quantised; the folder's are replaced by what that leaves.
    """
    architecture, raw = CASES[case]
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in _metadata(architecture, raw).items():
        _add(writer, key, value)
    for key, value in (fields or {}).items():
        _add(writer, key, value)
    tensors = load_file(folder / "model.safetensors")
    n_layers = raw.get("num_hidden_layers", raw.get("n_layer"))
    known = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(known[architecture], n_layers)
    kept, experts = {}, {}
    for name, values in tensors.items():
        head, _, tail = name.partition(".experts.")
        index, _, rest = tail.partition(".")
        if parts := _parts(name, values, raw):
            kept[name] = _rounded(values, kind)
            for place, part in parts.items():
                _write(writer, place, _rounded(part, kind), kind)
            continue
        place = names.get_name(
            f"{head}.experts.{rest}" if tail else name,
            try_suffixes=(".weight", ".bias"),
        )
        is_turned = architecture == "gpt2" and place.split(".")[-2] in _TURNED
        values = values.T if is_turned else values
        values = _rounded(values, kind)
        kept[name] = np.ascontiguousarray(values.T if is_turned else values)
        values = _their_layout(architecture, place, values, raw)
        if tail:
            experts.setdefault(place, {})[int(index)] = values
        else:
            _write(writer, place, values, kind)
    for place, found in experts.items():
        _write(writer, place, np.stack([found[i] for i in sorted(found)]), kind)
    scaling = raw.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(raw))
    for which in ("long", "short"):
        if (factors := scaling.get(f"{which}_factor")) is not None:
            values = np.array(factors, np.float32)
            writer.add_tensor(f"rope_factors_{which}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def _parts(name, values, raw):
    """Tensors of a file that hold one of a folder in another form, if they do."""
    block = f"blk.{name.split('.')[2]}." if ".layers." in name else ""
    if name.endswith("e_score_correction_bias"):
        return {f"{block}exp_probs_b.bias": values}
    if name.endswith("self_attn.sinks"):
        return {f"{block}attn_sinks.weight": values}
    if name.endswith("experts.down_proj"):
        return {f"{block}ffn_down_exps.weight": values.swapaxes(1, 2)}
    if name.endswith("experts.down_proj_bias"):
        return {f"{block}ffn_down_exps.bias": values}
    if ".experts.gate_up_proj" in name:
        kernel = "weight" if name.endswith("proj") else "bias"
        turned = values.swapaxes(1, -1)
        return {
            f"{block}ffn_gate_exps.{kernel}": turned[:, 0::2],
            f"{block}ffn_up_exps.{kernel}": turned[:, 1::2],
        }
    if name.endswith("kv_b_proj.weight"):
        heads = values.reshape(raw["num_attention_heads"], -1, values.shape[1])
        n = raw["qk_nope_head_dim"]
        return {
            f"{block}attn_k_b.weight": heads[:, :n].swapaxes(1, 2),
            f"{block}attn_v_b.weight": heads[:, n:],
        }
    return {}


def _rounded(values, kind):
    """What a quantisation leaves of weights of two axes or more."""
    if values.ndim < 2 or kind == KIND.F32:
        return values
    values = np.ascontiguousarray(values)
    return gguf.dequantize(gguf.quantize(values, kind), kind)


def _write(writer, place, values, kind):
    if values.ndim < 2 or kind == KIND.F32:
        writer.add_tensor(place, np.ascontiguousarray(values, np.float32))
        return
    values = np.ascontiguousarray(values)
    writer.add_tensor(place, gguf.quantize(values, kind), raw_dtype=kind)


def _their_layout(architecture, place, values, raw):
    layer = place.split(".")[-2]
    if architecture.startswith("gemma") and layer.endswith("norm"):
        return values + 1
    n_heads = raw.get("num_attention_heads")
    if architecture in ("llama", "granite", "smollm3", "olmo"):
        heads = {"attn_q": n_heads, "attn_k": raw.get("num_key_value_heads")}
        if layer in heads:
            parts = values.reshape(heads[layer], 2, -1, *values.shape[1:])
            return parts.swapaxes(1, 2).reshape(values.shape)
    if architecture == "gptneox" and layer == "attn_qkv":
        parts = values.reshape(n_heads, 3, -1, *values.shape[1:])
        return np.concatenate([parts[:, i] for i in range(3)]).reshape(values.shape)
    return values


def _metadata(architecture, raw):
    found = {}
    for key, fields in _KEYS.items():
        for field in fields:
            if field in raw:
                found[f"{architecture}.{key}"] = raw[field]
    found = {key: value for key, value in found.items() if value is not None}
    width = raw.get("head_dim")
    if (share := raw.get("partial_rotary_factor")) is not None:
        found[f"{architecture}.rope.dimension_count"] = int(width * share)
    scaling, start = raw.get("rope_scaling") or {}, f"{architecture}.rope.scaling."
    if (rope_type := scaling.get("rope_type")) in ("linear", "yarn"):
        found |= {f"{start}type": rope_type, f"{start}factor": scaling["factor"]}
    if rope_type == "yarn":
        first = scaling["original_max_position_embeddings"]
        found[f"{start}original_context_length"] = first
    if "mscale_all_dim" in scaling:
        found[f"{start}yarn_log_multiplier"] = 0.1 * scaling["mscale_all_dim"]
    if "kv_lora_rank" in raw:
        width = raw["qk_nope_head_dim"] + raw["qk_rope_head_dim"]
        found[f"{architecture}.attention.key_length_mla"] = width
        found[f"{architecture}.attention.head_count_kv"] = 1
    if architecture == "gpt-oss":
        width = raw["intermediate_size"]
        found[f"{architecture}.expert_feed_forward_length"] = width
    return found


def _add(writer, key, value):
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    add |= {str: writer.add_string, list: writer.add_array}
    add[type(value)](key, value)


def _llama3_factors(raw):
    width, scaling = raw["head_dim"], raw["rope_scaling"]
    factors = []
    for i in range(width // 2):
        wavelength = 2 * np.pi * raw["rope_theta"] ** (2 * i / width)
        first = scaling["original_max_position_embeddings"]
        if wavelength < first / scaling["high_freq_factor"]:
            factors.append(1.0)
        elif wavelength > first / scaling["low_freq_factor"]:
            factors.append(scaling["factor"])
        else:
            span = scaling["high_freq_factor"] - scaling["low_freq_factor"]
            smooth = (first / wavelength - scaling["low_freq_factor"]) / span
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, np.float32)
