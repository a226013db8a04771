"""Files: networks, spiking networks, and the exchange format NIR."""
