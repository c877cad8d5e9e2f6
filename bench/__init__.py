"""Benchmarks: each figure beside a raw probe measured in the same run. `make bench` prints them."""
