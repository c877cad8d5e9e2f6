"""Jobs on their way to work and back: who executes them here, how many at once, and how they travel
to workers elsewhere.

It decides nothing about a run: answers go to the kernel as stimuli.
"""
