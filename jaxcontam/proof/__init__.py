"""From a matrix of scores to p-value, effect, verdict, words and page: `prove`."""
