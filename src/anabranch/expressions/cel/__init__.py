"""CEL, the expression language of rule documents: lexer, parser, evaluation, costs, RE2.

PURE. Nothing here knows rules.
"""
