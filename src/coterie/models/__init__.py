"""Models: parameters and how they score. Training is elsewhere."""
