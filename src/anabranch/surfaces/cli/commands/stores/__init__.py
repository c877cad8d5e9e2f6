"""`store`: the file of a store checked, copied, put back and made smaller.

It knows no run but as rows.
"""
