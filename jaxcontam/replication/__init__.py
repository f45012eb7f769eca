"""Does a model write a file by heart? Golchin and Surdeanu: `replicate`."""
