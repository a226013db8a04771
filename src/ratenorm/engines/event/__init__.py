"""The event engine: on a CPU, at the price of the spikes.

Layer by layer over a chunk of steps. A spike is a bit; a layer's spikes are listed, and each adds its rows of
weights to the currents it reaches. See `plan.py` for what becomes of a graph; `listing.py`,
`scatter.py` and `fire.py` for the work itself.
"""
