"""The functions that people call: a model and texts in, a frozen result out.

Nothing here prints; files are written by a result's `save` and, where a folder of
scores is named, by the store.
"""
