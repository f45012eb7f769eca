"""Does a model write a file by heart? Golchin and Surdeanu: `replicate`.

To read in this order: design (flags, and the plan that they make), instances (drawn,
cut in two, put into prompts), overlap and bleurt (measures), judges, control (the
verdict), comparisons and hidden (other ways to ask), judging (completions to results),
recorded (completions and labels read back, `verify`), run, page, command.
"""
