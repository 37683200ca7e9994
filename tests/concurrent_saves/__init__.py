"""Processes that save to one folder at a time, and processes that are killed in a save."""
