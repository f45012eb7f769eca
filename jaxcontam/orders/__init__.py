"""Was a file read in its published order? Oren et al.: `audit`, `plan`, `calibrate`."""
