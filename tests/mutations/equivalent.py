"""Generated mutants that change nothing that a test should see, each with the reason.

A mutant is named by file, function and the text before and after, as `make mutants` prints it.
`tests/mutations/test_lists.py` fails for a name that no longer exists.
"""

EQUIVALENT: dict[str, str] = {}
