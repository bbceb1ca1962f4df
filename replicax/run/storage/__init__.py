"""Run folders: records, commits and checkpoints, and what keeps them whole."""
