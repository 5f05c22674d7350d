"""From a file of interactions to contiguous arrays: reading, checking, filtering, fetching, making up."""
