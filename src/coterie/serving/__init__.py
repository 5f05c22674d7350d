"""Recommendations for applications: over HTTP (`coterie api`), and as files (`coterie export`)."""
