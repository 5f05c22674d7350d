"""Papers' experiments, declared and repeated: runs, verdicts on what papers claim, and a report."""
