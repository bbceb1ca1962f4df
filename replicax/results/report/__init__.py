"""The report of a run: the sections of its page."""
