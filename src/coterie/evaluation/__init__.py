"""Evaluation: protocols, ranks, metrics, leak checks and significance tests."""
