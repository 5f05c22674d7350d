"""What keeps people's data with them, and how far."""
