"""The eta language: its op table, programs, checks and canonical bytes."""
