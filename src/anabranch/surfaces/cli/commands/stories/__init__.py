"""`story`: the marketplace at work, with real nodes on this machine."""
