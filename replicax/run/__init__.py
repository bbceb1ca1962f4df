"""From options to a finished run folder: the loops, records and checkpoints."""
