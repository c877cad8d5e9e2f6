"""Keccak-256, the hash of Ethereum: selectors, event topics and the hashes of stored documents.

It is the sponge that became SHA-3, with the padding of before the standard, so `hashlib.sha3_256`
gives other values. Pure Python here; `pycryptodome` does the same faster and is used when it is
installed (the largest orchestration, 256 KiB, takes about a second without it).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

_RATE = 136  # bytes taken in per permutation
_MASK = (1 << 64) - 1
_ROUNDS = (
    0x0000000000000001, 0x0000000000008082, 0x800000000000808A, 0x8000000080008000,
    0x000000000000808B, 0x0000000080000001, 0x8000000080008081, 0x8000000000008009,
    0x000000000000008A, 0x0000000000000088, 0x0000000080008009, 0x000000008000000A,
    0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003,
    0x8000000000008002, 0x8000000000000080, 0x000000000000800A, 0x800000008000000A,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
)  # fmt: skip


def _rotations() -> tuple[tuple[int, int, int], ...]:
    """Where each lane goes and how far it is turned: (target, source, bits)."""
    moves = [(0, 0, 0)]
    x, y = 1, 0
    for step in range(24):
        bits = (step + 1) * (step + 2) // 2 % 64
        moves.append((y + 5 * ((2 * x + 3 * y) % 5), x + 5 * y, bits))
        x, y = y, (2 * x + 3 * y) % 5
    return tuple(moves)


_MOVES = _rotations()


def _permuted(lanes: list[int]) -> list[int]:
    """Keccak-f[1600] on 25 lanes of 64 bits."""
    moved = [0] * 25
    for constant in _ROUNDS:
        sums = [lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20] for x in _X]
        turned = [((lane << 1) | (lane >> 63)) & _MASK for lane in sums]
        mix = [sums[x - 1] ^ turned[x - 4] for x in _X]
        for target, source, bits in _MOVES:
            lane = lanes[source] ^ mix[source % 5]
            moved[target] = ((lane << bits) | (lane >> (64 - bits))) & _MASK
        lanes = [moved[i] ^ (~moved[right] & moved[further]) for i, right, further in _NEIGHBOURS]
        lanes[0] ^= constant
    return lanes


_X = range(5)
_NEIGHBOURS = tuple(
    (5 * y + x, 5 * y + (x + 1) % 5, 5 * y + (x + 2) % 5) for y in range(5) for x in range(5)
)


def keccak256_pure(data: bytes) -> bytes:
    """The hash without any package."""
    padded = bytearray(data)
    padded.append(0x01)
    padded.extend(bytes(-len(padded) % _RATE))
    padded[-1] |= 0x80
    lanes = [0] * 25
    for start in range(0, len(padded), _RATE):
        for i in range(_RATE // 8):
            at = start + 8 * i
            lanes[i] ^= int.from_bytes(padded[at : at + 8], "little")
        lanes = _permuted(lanes)
    return b"".join(lane.to_bytes(8, "little") for lane in lanes[:4])


def keccak256(data: bytes) -> bytes:
    """The 32 bytes of Keccak-256 of `data`."""
    return _best()(data)


@cache
def _best() -> Callable[[bytes], bytes]:
    """Looked for with the first hash: most programs never need one."""
    try:
        from Crypto.Hash import keccak
    except ImportError:
        return keccak256_pure

    def fast(data: bytes) -> bytes:
        digest: bytes = keccak.new(digest_bits=256, data=data).digest()
        return digest

    return fast
