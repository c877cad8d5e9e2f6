"""What is legal in a playbook and hardly meant: names, results, failures, guards.

They find problems and change nothing.
"""
