"""Functions that people call: a model and texts in, a typed result out.

Nothing is printed or written; progress is a callback.
"""
