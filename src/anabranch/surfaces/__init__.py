"""Faces of the same verbs: the command line here, HTTP and the web UI beside it later."""
