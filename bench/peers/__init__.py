"""The same work done by neighbours, each in an environment of its own."""
