"""A worker elsewhere: claims jobs of a pool from a server, does them, and brings the answers.

It has the performers of an engine and neither a store nor a state: what it needs it asks for.
"""
