"""Evaluation nobody can argue with: protocols, ranks, metrics, leak checks, significance."""
