"""PURE. Expression languages: what stands in guards and templates, compiled once, run often."""
