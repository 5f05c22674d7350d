"""Recordings of runs: users' embeddings, selections, updates and inferences, round by round."""
