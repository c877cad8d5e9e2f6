"""What every module needs: its environment, how it asks its host, how it answers.

Nothing here knows what a module does.
"""
