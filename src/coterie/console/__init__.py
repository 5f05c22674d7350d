"""`coterie console`: runs, federations and papers in a browser."""
