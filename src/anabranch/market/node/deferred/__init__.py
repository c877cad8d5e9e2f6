"""Deferred operations: what a caller was promised an answer to, and where the answer is found.

What is done meanwhile belongs to the parts that promise; here is only how the promise stands.
"""
