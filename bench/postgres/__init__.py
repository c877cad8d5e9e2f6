"""Benchmarks of the store on PostgreSQL, beside raw probes on the same server."""
