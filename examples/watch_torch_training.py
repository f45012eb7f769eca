"""Watch a benchmark while a transformers model trains on a corpus that holds it.

python examples/watch_torch_training.py
"""

import random

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import jaxcontam

STEPS, EVERY = 120, 40


def tokenizer_of(texts: list[str]) -> transformers.PreTrainedTokenizerFast:
    """A small word-level tokenizer."""
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>", "<bos>"])
    made.train_from_iterator([*texts, "\n"], trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<bos>", unk_token="<unk>"
    )


def main() -> list[jaxcontam.AuditResult]:
    """Train, and audit on the way."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghij", k=3)) for _ in range(100)]
    benchmark = [" ".join(rng.choices(words, k=7)) for _ in range(64)]
    tokenizer = tokenizer_of(benchmark)
    # Dropout off: memorising is the point here.
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=64,
        n_embd=64,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=1,
        eos_token_id=1,
    )
    model = transformers.GPT2LMHeadModel(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = tokenizer([one for text in benchmark for one in (text, "\n")]).input_ids
    stream = torch.tensor([i for row in rows for i in row])
    audits = []
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(stream) - 48, (16,))
        batch = torch.stack([stream[start : start + 48] for start in starts])
        model(input_ids=batch, labels=batch).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        # The five lines that watch.
        if step % EVERY == 0:
            found = jaxcontam.audit(
                model, benchmark, tokenizer=tokenizer, order="random"
            )
            gain = found["direction"].effect
            print(f"step {step}: {found.verdict}, {gain:.2f} nats a boundary")
            audits.append(found)
    return audits


if __name__ == "__main__":
    main()
