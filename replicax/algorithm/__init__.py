"""One step of Algorithm 1: arrays in, arrays out, no disk and no clock. Start at `step.py`."""
