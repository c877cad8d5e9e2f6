"""The HTTP API: one table of routes, one module a resource, errors that say what to change."""
