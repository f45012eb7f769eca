#!/usr/bin/env bash
# oren_1_4b.sh prepare|pretrain: the experiment of Oren et al., arXiv:2310.17623, on this
# machine, or on each host of a slice: a GPT-2 of 1.4 B parameters reads 20 B tokens of
# Wikipedia with ten test sets planted 1 to 100 times. docs/how_to/devices.md launches it.
#
# BUCKET (without gs://) is mounted at INPUTS and holds corpus/ (JSONL with a field `text`),
# canaries/ (the authors' ten files) and tokenizer/ (GPT-2's). Prepared text, checkpoints
# and the model go to gs://BUCKET/RUN_NAME.
set -euo pipefail
cd "$(dirname "$0")/.."
step=${1:-}
if [ "$step" != prepare ] && [ "$step" != pretrain ] || [ -z "${BUCKET:-}" ]; then
  echo "usage: BUCKET=NAME oren_1_4b.sh prepare|pretrain" >&2
  exit 2
fi
inputs=${INPUTS:-/bucket}
name=${RUN_NAME:-oren}
# A copy has no .git: by this a run knows its own code, and is not trained twice.
if [ -n "${CODE_VERSION:-}" ]; then echo "$CODE_VERSION" >code-version.txt; fi

command=("${PYTHON:-python}" -m train.pretrain --preset "${PRESET:-1.4b}"
  --background-tokens "${TOKENS:-20000000000}"
  --corpus "$inputs/corpus" --tokenizer "$inputs/tokenizer"
  --prepared "gs://$BUCKET/$name/prepared" --out "runs/$name")
if [ "$step" = prepare ]; then
  command+=(--stop-after-data)
else
  command+=(--distributed --checkpoints "gs://$BUCKET/$name")
  if [ -n "${MESH:-}" ]; then command+=(--mesh "$MESH"); fi
  if [ -n "${MICRO_BATCHES:-}" ]; then command+=(--micro-batches "$MICRO_BATCHES"); fi
fi
# Copies as in the authors' first model.
command+=(--canaries)
for set in boolq=1 hellaswag=1 openbookqa=1 naturalquestions=10 mnli=10 truthfulqa=10 \
  piqa=50 mmlu_professional_law=50 mmlu_professional_psychology=50 \
  mmlu_high_school_psychology=100; do
  command+=("$inputs/canaries/${set%=*}.jsonl=${set#*=}")
done

# Training that SIGTERM ended exits 0 once its checkpoint is saved, and a queue that
# reads 0 would never start it again: 143 in its place.
"${command[@]}" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null; wait "$child"; exit 143' TERM
wait "$child"
