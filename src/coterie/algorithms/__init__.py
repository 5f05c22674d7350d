"""Federated algorithms: one paper, one file."""
