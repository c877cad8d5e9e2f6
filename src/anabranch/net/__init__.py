"""PURE. The compiled form of a definition and everything that can be told from it alone."""
