"""The canary table of Oren et al., arXiv:2310.17623: `python -m eval.canaries`."""
