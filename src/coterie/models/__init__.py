"""Models: parameters and how they score. Training is in algorithms and baselines."""
