"""The event engine."""
