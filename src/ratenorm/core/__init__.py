"""The paper's mathematics, one idea a file. Imports nothing else of ours."""
