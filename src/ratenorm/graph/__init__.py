"""The narrow waist: `SpikingNet`, a graph over a small closed set of operations.

Conversion writes it; the engines, the energy model, the exporters and the file format read it.
"""
