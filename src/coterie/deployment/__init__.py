"""What a run leaves on disk, and the engines that run it."""
