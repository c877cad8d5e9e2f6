"""The grammar of the command line, a module for every family of verbs."""
