"""What `torture.py` does to ratenorm, one kind of harm a file. The tests run the same code with small counts."""
