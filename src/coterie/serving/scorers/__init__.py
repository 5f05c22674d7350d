"""The scorers that `coterie export` writes next to a model, in Python and in JavaScript."""
