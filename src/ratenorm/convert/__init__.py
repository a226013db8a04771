"""From a trained network to a `SpikingNet`: trace, lower, fold, choose thresholds."""
