"""What begins runs by itself, over HTTP."""
