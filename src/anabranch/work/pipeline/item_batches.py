"""Items that are handed to a process many at once, and come back one by one.

The processes of inline code take longer to be asked than a short item takes to be done. So the
items of a shard go there in batches: each is rendered by itself as before, and judged by itself
when its answer comes. An item that is unlike the others is done by itself. What comes out is the
same as by the longer way; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anabranch.kernel.values import Answer
from anabranch.net.program import Iteration, TaskSpec
from anabranch.net.reads import KEYCHAIN
from anabranch.work.kinds.lazy import LazyPerformer
from anabranch.work.pipeline.fast_path import FastPath, only_goes_on
from anabranch.work.pipeline.services import Services
from anabranch.work.port import Task

BATCH_MAX = 256  # items
BATCH_BYTES = 1 << 20
_FIRST = 8  # items of the first batch of a shard: they may be slow


class ItemRequest(Protocol):
    """One item as its performer wants to be told of it."""

    @property
    def body(self) -> bytes: ...

    def fits(self, other: Any, /) -> bool: ...


#: Makes it of the item, or gives None where the item has to be done by itself.
RequestOfItem = Callable[[Any], ItemRequest | None]


class BatchPerformer(Protocol):
    """A performer that also takes many items at once."""

    def together(self, task: Task, /) -> ItemRequest | None:
        """The item among others, or None where it has to be done by itself."""

    def request_of_item(
        self, inputs: Any, path: tuple[str, ...], step: str, /
    ) -> RequestOfItem | None:
        """The same for every item that templates find at this path, where its inputs have this
        structure and are made of nothing else; None where the task of each has to be made."""

    async def perform_each(
        self,
        items: Sequence[Any],
        numbers: Sequence[int],
        take: Callable[[Sequence[Answer]], None],
        *,
        stops: bool,
    ) -> bool:
        """Do some of the items that fit each other, at least the first; False where none was."""


def item_batches(iteration: Iteration, services: Services, task: Task) -> ItemBatches | None:
    """The batches for the items of this task, where there can be any."""
    program = iteration.program
    if len(program.tasks) != 1 or program.variables is not None or services.keyring is not None:
        return None
    spec = program.tasks[0]
    if not only_goes_on(spec):
        return None
    if iteration.parallel or task.shard.size == 1 or KEYCHAIN in task.names:
        return None
    last_try = task.shard.tries >= iteration.retries
    stops = iteration.ends_at(for_good=True) or (not last_try and iteration.ends_at(for_good=False))
    if stops and _may_fail_later(spec):
        return None  # the process would have begun the next item by then
    performer: Any = services.performers.get(spec.kind)
    if isinstance(performer, LazyPerformer):
        performer = performer.itself()
    if not hasattr(performer, "perform_each"):
        return None
    structure, of_item = getattr(spec.inputs, "structure", None), None
    if iteration.item and structure is not None:
        of_item = performer.request_of_item(structure, iteration.item, task.step)
    path = FastPath(spec, _never, task)
    return ItemBatches(performer, path, of_item, simple=spec.simple, stops=stops)


def _may_fail_later(spec: TaskSpec) -> bool:
    """What follows a task that ended well can make a failure of it."""
    shares = spec.set_shared or any(rule.set_shared for rule in spec.rules)
    return bool(shares) or any(rule.do == "fail" for rule in spec.rules)


class ItemBatches:
    def __init__(
        self,
        performer: BatchPerformer,
        path: FastPath,
        of_item: RequestOfItem | None,
        *,
        simple: bool,
        stops: bool,
    ) -> None:
        self._performer = performer
        self.path = path
        self.of_item = of_item  # how an item is told of, where its task need not be made
        self.simple = simple  # an item that ended well is its result, and nothing follows
        self._stops = stops
        self._ready: list[ItemRequest] = []
        self._bytes = 0  # of those
        self._most = _FIRST

    def request(self, key: str, given: dict[str, Any]) -> ItemRequest | None:
        """An item by its task; `given` is what its templates see as `iter`."""
        task = self.path.task(key, given)
        return self._performer.together(task) if isinstance(task, Task) else None

    def add(self, request: ItemRequest | None) -> bool:
        """Put an item behind those of the next batch. False where it does not belong there."""
        if request is None or (self._ready and not request.fits(self._ready[0])):
            return False
        self._ready.append(request)
        self._bytes += len(request.body)
        return True

    @property
    def ready(self) -> int:
        return len(self._ready)

    @property
    def full(self) -> bool:
        """There is no room for another item."""
        return len(self._ready) >= self._most or self._bytes > BATCH_BYTES

    def forget(self) -> None:
        """The items that are ready are done another way."""
        self._ready, self._bytes = [], 0

    async def perform(
        self, numbers: Sequence[int], take: Callable[[Sequence[Answer]], None]
    ) -> bool:
        """Do some of the items that are ready; those that are left stay for the next time."""
        batch, done = self._ready, 0

        def answered(answers: Sequence[Answer]) -> None:
            nonlocal done
            done += len(answers)
            take(answers)

        begun = await self._performer.perform_each(batch, numbers, answered, stops=self._stops)
        self._most = min(BATCH_MAX, 2 * done if done < len(batch) else 2 * self._most)
        self._most = max(2, self._most)
        self._ready = batch[done:]
        self._bytes = sum([len(request.body) for request in self._ready])
        return begun


def _never(task: Task) -> Any:
    raise AssertionError(f"items of {task.loop} are handed on together")
