"""`store`: a store checked, copied to another, migrated; its file copied, put back, made smaller.

It knows no run but as rows.
"""
