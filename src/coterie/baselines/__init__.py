"""Centralised recommenders, as baselines for the federated ones."""
