"""Membership scores, all oriented so that higher means a member.

Left out, since a published definition that could be computed by hand was not at hand or
the cost is of another kind: the trajectory features of CAMIA (arXiv:2409.13745), which
calibrates several of them per model; the infilling score (a pass a token); attacks that
train models of their own (LiRA and what follows it).
"""
