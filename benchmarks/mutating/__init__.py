"""The parts of `benchmarks/mutants.py`: which faults there are, which tests run a line, and what becomes of a fault."""
