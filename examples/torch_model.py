"""Audit a model of transformers that is in memory, as a fine-tuning script has it.

python examples/torch_model.py MODEL_DIR benchmark.txt
"""

import sys
from pathlib import Path

import transformers

import jaxcontam


def main(model_dir: str, benchmark: str) -> jaxcontam.AuditResult:
    """Load as usual, then ask: one line of the file is one example."""
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    texts = Path(benchmark).read_text(encoding="utf-8").splitlines()
    result = jaxcontam.audit(model, texts, tokenizer=tokenizer)
    print(result)  # the table that `jaxcontam audit` prints
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
