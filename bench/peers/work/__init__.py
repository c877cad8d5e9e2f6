"""Scripts that a peer's own interpreter runs; only `measuring` is read by ours."""
