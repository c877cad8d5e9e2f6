"""PURE. CEL, the expression language of rule documents: lexer, parser, evaluation, costs, RE2.

Nothing here knows rules.
"""
