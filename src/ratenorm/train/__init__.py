"""Training in two stages (Algorithm 1): weights for accuracy, then one shared p' for latency."""
