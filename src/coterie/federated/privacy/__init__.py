"""User-level differential privacy: integer noise, and the epsilon that it spends."""
