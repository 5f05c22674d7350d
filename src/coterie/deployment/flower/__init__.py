"""Flower carries the bytes of a federation between parties: its SuperLink and SuperNodes, and two thin apps of ours."""
