"""The event engine: work follows the spikes. Python turns a network into tables; the C++ core (native/) runs them."""
