"""What references lead to: the results of a step or a loop, and payloads.

anabranch:run:<run>/step/<name>   the last result of a step, as in the summary of a final step
anabranch:run:<run>/loop/<id>     the results of the items of a loop (its `refs`), in pages
anabranch:sha256:<hash>           a value that is kept beside the log (`_ref`, `artifact put`)
"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.privacy import public
from anabranch.operations.read.reader import Reader
from anabranch.runtime.values.step_results import StepResults
from anabranch.work.loops.results import LoopResults, is_loop, page_of, run_of, step_in
from anabranch.work.values.payloads import StoredPayloads, load, place_in

PAGE_MAX = 10_000
PAGE_BYTES = 4 * 1024 * 1024  # or one result
FORMS = "anabranch:run:RUN/step/NAME, anabranch:run:RUN/loop/ID or anabranch:sha256:HASH"


class Referred(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a reference leads to. The rest is only there for the items of a loop."""

    ref: str
    value: Any  # of a loop: the results of this page, in the order of the items
    total: int | None = None
    offset: int | None = None
    next: int | None = None  # ask for the next page with this offset; none at the end


async def read_reference(read: Reader, ref: str, *, offset: int = 0, limit: int = 1000) -> Referred:
    if not 1 <= limit <= PAGE_MAX:
        raise InputError(f"a page has 1 to {PAGE_MAX:,} results, not {limit:,}", code="usage")
    payloads = StoredPayloads(read.store)
    place = place_in(ref)
    if place is not None:
        return Referred(ref=ref, value=await load(payloads, place))
    if not is_loop(ref) and step_in(ref) is None:
        raise InputError(f"{ref!r:.120} is no reference: write {FORMS}", code="bad_reference")
    results = LoopResults(read.store, payloads, StepResults(read.store))
    run, private = run_of(ref), ""
    if run:  # `last`, or the beginning of an id, where a person writes it
        found_run = read.find(run).run
        ref = ref.replace(f"run:{run}/", f"run:{found_run}/", 1)
        private = read.private(found_run)
    total = await results.size(ref)
    if step_in(ref) is not None:
        [value] = await results.results(ref, 0, 1, None)
        return Referred(ref=ref, value=public(value, private))
    offset = min(offset, total)
    found = await page_of(results, ref, offset, min(offset + limit, total), PAGE_BYTES)
    stop = offset + len(found)
    return Referred(
        ref=ref,
        value=public(found, private),
        total=total,
        offset=offset,
        next=stop if stop < total else None,
    )
