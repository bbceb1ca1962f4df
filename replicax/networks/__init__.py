"""Posteriors over neural networks: problems, methods, training, evaluation and predictions."""
