"""Real federations: a server and nodes that exchange bytes, their stores and their certificates."""
