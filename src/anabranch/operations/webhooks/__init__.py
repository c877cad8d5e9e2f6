"""Webhooks: who is told of which events, matching, signing, sending and sending again.

It follows the log and never holds up a run.
"""
