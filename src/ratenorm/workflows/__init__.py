"""Experiments: each reads a frozen configuration, works in a run folder, and leaves a record."""
