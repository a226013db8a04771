"""Exchange with others: NIR files, other simulators, ONNX, tables for hardware, limits of chips.

Nothing here is loaded by `import ratenorm`; the packages it needs are extras: `pip install "ratenorm[nir]"`.
"""
