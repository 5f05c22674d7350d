"""Experiments: configuration, training, run folders, comparisons, plans and tuning."""
