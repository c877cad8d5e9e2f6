"""The kinds of work a task can name, each with its inputs and its faults.

A kind answers; what follows from the answer is for the pipeline and the kernel.
"""
