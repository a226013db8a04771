"""Engines run a `SpikingNet`: the dense one on any device, the event engine on the CPU at the price of the spikes."""
