"""Runs eta programs on torch, for many instances at once."""
