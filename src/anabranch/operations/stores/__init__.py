"""A store as a whole: checked, copied to another; its file copied, put back, made smaller.

It knows no runs but as rows.
"""
