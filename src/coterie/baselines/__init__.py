"""Centralised recommenders: what the federated ones are measured against."""
