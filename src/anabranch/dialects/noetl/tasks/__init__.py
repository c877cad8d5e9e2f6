"""The tasks of a step: kinds, inputs, credentials, retries and the rules after them.

They are lowered to programs; nothing is carried out.
"""
