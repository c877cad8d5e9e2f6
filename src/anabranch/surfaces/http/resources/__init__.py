"""The routes of the API, one module a resource.

A handler reads its request, calls one operation and answers; it holds no rule.
"""
