"""Anabranch."""
