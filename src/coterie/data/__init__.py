"""Interactions: reading, checking, fetching, filtering, splitting and generating them."""
