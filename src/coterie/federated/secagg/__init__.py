"""Secure aggregation: a server learns sums over clients, never a single client's update."""
