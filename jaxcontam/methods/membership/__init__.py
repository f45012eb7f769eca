"""Membership scores: one module each, all oriented so that higher means a member."""
