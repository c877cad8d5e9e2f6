"""The pages and their forms, one module a page.

A page asks `operations` and renders a template; it holds no rule.
"""
