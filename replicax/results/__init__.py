"""The result of a run: draws, diagnostics, summary and figures."""
