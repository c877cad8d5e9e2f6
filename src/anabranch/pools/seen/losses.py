"""Why attempts are lost on a cluster: the sorts that are counted, in words for people."""

from __future__ import annotations

from collections.abc import Mapping

#: "3 …" follows the number; docs/clusters.md explains each.
WORDS: Mapping[str, str] = {
    "worker": "with their worker",
    "rerun": "with their worker, begun again by the cluster itself",
    "cluster": "with the contact to the cluster",
    "never_begun": "never begun",
    "values": "for their values, which could not be read or written",
    "handed_back": "handed back by the worker",
    "deaf": "told to stop, and did not",
}


def losses_in_words(losses: Mapping[str, int]) -> str:
    counted = (f"{count:,} {WORDS.get(sort, sort)}" for sort, count in sorted(losses.items()))
    return ", ".join(counted)
