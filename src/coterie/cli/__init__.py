"""The command line. Heavy imports happen inside commands, so that `coterie --help` is immediate."""
