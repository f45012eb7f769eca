#!/usr/bin/env bash
# The experiment of Oren et al., arXiv:2310.17623: a GPT-2 of 1.4 B parameters reads 20 B
# tokens of Wikipedia with ten test sets planted 1 to 100 times. Inputs, in the bucket:
# corpus/ (JSONL with a field `text`), canaries/ (the authors' ten files), tokenizer/
# (GPT-2's). LAUNCH=jobset_run.sh runs it on GKE; LAUNCH=prepare, on any machine where
# the bucket is mounted, writes the data to PREPARED, from which the others then train.
# What it costs: README.md.
. "$(dirname "$0")/common.sh"
need BUCKET RUN_NAME

launch=${LAUNCH:-keep_running.sh}
tokens=${TOKENS:-20000000000}
# GPT-2's ids take two bytes, in the cache and in the stream; a fifth is for the rest.
export GKE_DISK=${GKE_DISK:-$((tokens * 4 * 6 / 5 / 2**30 + 4))Gi}
case $launch in
  # The boot disk of a TPU VM has no room for 20 B tokens twice; its memory has.
  keep_running.sh | run_all.sh) cache=/dev/shm/jaxcontam-tokens ;;
  # A container's /dev/shm is small.
  jobset_run.sh | prepare) cache=/tmp/jaxcontam-tokens ;;
  *) fail "LAUNCH is no launcher: $launch" \
    "keep_running.sh, run_all.sh, jobset_run.sh or prepare" ;;
esac

inputs=/mnt/jaxcontam
command=(python -m train.pretrain --distributed
  --preset "${PRESET:-1.4b}" --background-tokens "$tokens"
  --corpus "$inputs/corpus" --tokenizer "$inputs/tokenizer"
  --checkpoints "$(run_url)" --out "runs/$RUN_NAME" --cache "$cache")
if [ -n "${MESH:-}" ]; then
  command+=(--mesh "$MESH")
fi
if [ -n "${MICRO_BATCHES:-}" ]; then
  command+=(--micro-batches "$MICRO_BATCHES")
fi
if [ -n "${PREPARED:-}" ]; then
  command+=(--prepared "$PREPARED")
fi
# Copies as in the authors' first model.
command+=(--canaries
  "$inputs/canaries/boolq.jsonl=1"
  "$inputs/canaries/hellaswag.jsonl=1"
  "$inputs/canaries/openbookqa.jsonl=1"
  "$inputs/canaries/naturalquestions.jsonl=10"
  "$inputs/canaries/mnli.jsonl=10"
  "$inputs/canaries/truthfulqa.jsonl=10"
  "$inputs/canaries/piqa.jsonl=50"
  "$inputs/canaries/mmlu_professional_law.jsonl=50"
  "$inputs/canaries/mmlu_professional_psychology.jsonl=50"
  "$inputs/canaries/mmlu_high_school_psychology.jsonl=100")
if [ "$launch" = prepare ]; then
  need PREPARED
  command[2]=train.prepare
  run exec "${command[@]}"
  exit
fi
exec "$HERE/$launch" "${command[@]}"
