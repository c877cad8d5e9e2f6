"""Many runs at a glance: searched, counted over time and by definition; and saved views of lists.

What is counted here comes from the index cards of runs alone: no log is read.
"""
