"""Answers of a model that is asked for instances of a benchmark.

Golchin and Surdeanu 2023, "Time Travel in LLMs" (arXiv:2308.08493), and methods that
ask in other ways.
"""
