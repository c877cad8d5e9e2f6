"""What modules ask their host to keep: records, notifications, files, runs and completed steps.

Everything belongs to the module whose token was shown; a body never says whose it is. Nothing here
calls a module.
"""
