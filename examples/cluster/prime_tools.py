"""The work of primes.yaml: a tool that computes for a while, registered under a name.

The machine that starts the run imports it with `--tools`, and so does each worker of the cluster:
only its name and its arguments travel.
"""

import anabranch


@anabranch.tool("count_primes", blocking=True)
def count_primes(block: int, size: int) -> int:
    """How many primes are among the `size` numbers of this block; the first block begins at 0."""
    first, end = block * size, (block + 1) * size
    is_prime = bytearray([1]) * (end - first)
    divisor = 2
    while divisor * divisor < end:
        start = max(divisor * divisor, (first + divisor - 1) // divisor * divisor)
        is_prime[start - first :: divisor] = bytes(len(range(start, end, divisor)))
        divisor += 1
    return sum(is_prime) - sum(n in range(first, end) for n in (0, 1))
