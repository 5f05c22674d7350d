"""Reproductions of papers: their experiments as data, the runs, a verdict per claim, a report."""
