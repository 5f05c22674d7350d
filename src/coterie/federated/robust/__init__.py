"""Defences against hostile clients, between validation and aggregation."""
