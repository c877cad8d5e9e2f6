"""The file of a store as a whole: checked, copied, put back, made smaller.

It knows no runs but as rows.
"""
