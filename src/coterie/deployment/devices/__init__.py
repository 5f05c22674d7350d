"""The gateway through which browsers are clients of a federation."""
