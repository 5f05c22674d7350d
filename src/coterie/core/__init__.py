"""Foundations that all other packages use: settings, random streams, threads, records, progress."""
