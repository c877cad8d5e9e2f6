"""`credential`: secrets that a store keeps encrypted.

No verb here prints one.
"""
