"""D1 to D4: pools on real clusters of separate processes, beside the same cluster without us."""
