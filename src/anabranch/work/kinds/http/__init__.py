"""The kind `http`: one request, one response, and what each status means.

Which addresses it may reach is the policy of `work/network`.
"""
