"""Texts and documents that were seen, after Shi et al.: `membership`.

In the order of a run: `design` (flags), `known_texts` (files, sides, chosen scores),
`score` and `scores` (a row each), `passes` (what the model is read for), `blind`
(baselines and the verdict beside them), `judging` and `rates`, `result`; then `page`
and `kind` (the report), `run` (the function) and `command` (its shell).
"""
