"""A worker elsewhere: claims jobs of a pool from a server, does them, and brings the answers."""
