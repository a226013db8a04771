"""The command line: thin. It parses, calls public functions, and turns errors into one paragraph and an exit code."""
