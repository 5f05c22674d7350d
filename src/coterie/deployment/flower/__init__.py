"""Flower as the transport of a federation: its SuperLink and SuperNodes, with two small apps."""
