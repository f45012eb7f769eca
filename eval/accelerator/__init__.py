"""Speed of scoring and training on a GPU or a TPU."""
