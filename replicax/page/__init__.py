"""One self-contained HTML page: its contents, its charts, how it is rendered and served."""
