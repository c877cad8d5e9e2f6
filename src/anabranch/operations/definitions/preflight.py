"""What a definition needs and what an engine has, compared before the engine touches a run.

A start that cannot work is refused and leaves nothing behind. A recorded run that needs what is not
here is left exactly as it is, and says what is missing: parts that are missing are no answers of
the world, so nothing is recorded about them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from anabranch.errors import DefinitionError, InputError, MissingRequirements
from anabranch.kernel.state import State
from anabranch.kernel.step import deep_merge
from anabranch.net.net import Net
from anabranch.net.problems import Position, Problem, did_you_mean
from anabranch.operations.definitions.requirements import Requirement, requirements_of
from anabranch.work.file_policy import DEFINITIONS, EVERYWHERE, SETTING, FilePolicy
from anabranch.work.kinds.commands.isolation import SETTINGS, KeptNames
from anabranch.work.kinds.switched_off import why_off
from anabranch.work.secrets.keyring import Secrets

NETS_KEPT = 1024
CHILD = "playbook"  # the kind of work that begins another run
#: What a run remembers of the engine that began it; see `Preflight.started_with`.
BOOK, NODE, NO_SECRETS = "participants", "chain", "absent_keychain"


class Available(msgspec.Struct, frozen=True):
    """What an engine has, beside definitions and a store."""

    kinds: Collection[str] | None = None  # that there is work for; None stands for every kind
    off: frozenset[str] = frozenset()  # switched off by the operator
    outside: Callable[[str], bool] = lambda _pool: False  # pools of workers elsewhere
    workers: bool = True  # can ask this engine for jobs, as those of a server do
    clusters: frozenset[str] = frozenset()  # pools that this engine gives to a compute cluster
    unasking: frozenset[str] = frozenset()  # those of them whose work cannot ask this engine
    extras: frozenset[str] = frozenset({"buckets"})  # whose packages are installed
    participants: bool = True
    chain: bool = True
    book: str = ""  # where the participants are listed
    node: str = ""  # the chain's node, without credentials
    files: FilePolicy = EVERYWHERE  # that definitions may name
    own: KeptNames = SETTINGS  # variables that they may not


class Preflight:
    """One engine's answer to: can you run this?"""

    def __init__(self, available: Available | None = None) -> None:
        self.available = available or Available()
        self.secrets = Secrets(self.available.files, self.available.own)
        self._known: OrderedDict[str, tuple[Requirement, ...]] = OrderedDict()

    # -- definitions -------------------------------------------------------------------------

    def require(self, net: Net) -> None:
        """Refuse to start what could not run here."""
        if pools := list(self._pools(net)):
            raise InputError(pools[0].message, code="no_workers")
        if missing := list(self._missing(net)):
            raise DefinitionError(missing)

    def not_done_here(self, net: Net) -> Iterator[Problem]:
        """Where a definition asks for a kind of work that is switched off here, or that the cluster
        of its pool cannot do."""
        return (one for one in self._missing(net) if one.code in ("kind-off", "no-server"))

    def missing_extras(self, net: Net) -> Iterator[Problem]:
        """Packages that the work of this process would need, and does not find."""
        for need in net.extras:
            if need.extra not in self.available.extras:
                said = f"{need.what} needs packages that are not installed here"
                hint = f"pip install 'anabranch[{need.extra}]'"
                yield Problem(need.position, "missing-extra", said, hint, "warning")

    def refused_files(self, net: Net) -> Iterator[Problem]:
        """Files that are named and that the work of this process may not open. Looks at none."""
        named = [(one.path, one.position) for one in net.files]
        named += [(c.path, c.position) for c in net.children if c.path.endswith(DEFINITIONS)]
        for path, position in named:
            if why := self.available.files.why_not(path):
                hint = f"put it where {SETTING} allows files, or add its folder there"
                yield Problem(position, "file-not-allowed", why, hint, "warning")

    def missing_rules(self, net: Net) -> Iterator[Problem]:
        return (one for one in self._missing(net) if one.code == "no-rule")

    async def started_with(self, net: Net, given: Mapping[str, Any]) -> dict[str, str]:
        """What a run that begins here remembers: hints for whoever opens it again."""
        have, sorts = self.available, {need.sort for need in self._needs(net)}
        begun: dict[str, str] = {}
        if "participants" in sorts and have.book:
            begun[BOOK] = have.book
        if "chain" in sorts and have.node:
            begun[NODE] = have.node
        if net.keychain:
            workload = deep_merge(net.workload, given)
            await self.secrets.look(net, workload)
            begun[NO_SECRETS] = " ".join(self.secrets.not_seen(net, workload))
        return {hint: what for hint, what in begun.items() if what}

    # -- recorded runs -----------------------------------------------------------------------

    def require_for(self, net: Net, state: State | None) -> None:
        """Refuse to touch a recorded run that needs what is not here; without its state, because
        of what its definition alone says."""
        if state is None:
            missing = _each_once([*self._missing(net), *self._pools(net)])
            self._refuse(f"runs of {net.name!r} that wait are left as they are", missing)
        elif not state.finished:
            self._refuse(_left_as_it_is(state), self._missing_for(net, state))

    async def require_again(self, net: Net, state: State) -> None:
        """Refuse to do a run again that has ended: the new one will need what this one had."""
        await self.secrets.look(net, state.workload)
        self._refuse(_left_as_it_is(state), self._missing_for(net, state))

    def missing_for(self, net: Net, state: State) -> list[Problem]:
        """What this engine does not have of what the run needs, one problem for each thing."""
        return [] if state.finished else self._missing_for(net, state)

    def suspects(self, net: Net) -> bool:
        """Whether a run of this definition may miss something; only its state says what."""
        begun = State(workload=dict(net.workload), started_with={NODE: "some node"})
        return bool(self._missing_for(net, begun))

    @staticmethod
    def _refuse(what: str, missing: list[Problem]) -> None:
        if missing:
            said = "; ".join(f"{one.message} ({one.hint})" for one in missing)
            codes = [one.code for one in missing]
            raise MissingRequirements(f"{what}: {said}", codes)

    def _missing_for(self, net: Net, state: State) -> list[Problem]:
        begun = state.started_with
        missing = [_reminded(one, begun) for one in self._missing(net)]
        missing += self._lost_chain(net, begun)
        missing += self._lost_secrets(net, state)
        missing += self._pools(net)
        return _each_once(missing)

    def _lost_chain(self, net: Net, begun: Mapping[str, str]) -> Iterator[Problem]:
        """Without its chain a session would go on, and come to something else."""
        if self.available.chain or not begun.get(NODE):
            return
        for need in self._needs(net):
            if need.sort == "chain":
                said = f"step {need.step!r} needs the chain that the run was started with"
                yield Problem(need.position, "no-chain", said, f"--rpc, such as {begun[NODE]}")
                return

    def _lost_secrets(self, net: Net, state: State) -> Iterator[Problem]:
        """Secrets that were there when the run began."""
        never = state.started_with.get(NO_SECRETS, "").split()
        for name, why in self.secrets.absent(net, state.workload):
            if name not in never:
                said = f"keychain entry {name!r} is not here, {why}"
                yield Problem(Position(1, 1), "no-secret", said, "give it to the engine's process")

    # -- both --------------------------------------------------------------------------------

    def _needs(self, net: Net) -> tuple[Requirement, ...]:
        known = self._known.get(net.fingerprint)
        if known is None:
            known = self._known[net.fingerprint] = requirements_of(net)
            if len(self._known) > NETS_KEPT:
                self._known.popitem(last=False)
        return known

    def _pools(self, net: Net) -> Iterator[Problem]:
        """Steps for workers elsewhere, where workers have no door to come in by and no cluster
        takes their place."""
        if not self.available.workers:
            for need in self._elsewhere(net):
                if need.name not in self.available.clusters:
                    yield _no_workers(need)

    def _elsewhere(self, net: Net) -> list[Requirement]:
        outside = self.available.outside
        return [need for need in self._needs(net) if need.sort == "pool" and outside(need.name)]

    def _missing(self, net: Net) -> Iterator[Problem]:
        elsewhere = {need.step: need.name for need in self._elsewhere(net)}
        for need in self._needs(net):
            problem = self._lacks(need, pool=elsewhere.get(need.step, ""))
            if problem is not None:
                yield problem

    def _lacks(self, need: Requirement, *, pool: str) -> Problem | None:
        """The problem with it, if this engine does not have it. Kinds of a pool elsewhere are its
        matter, as long as they need nothing of this engine."""
        have, at = self.available, need.position
        if need.sort == "kind" and need.name == CHILD and pool in have.unasking:
            return _no_server(need, pool)
        if need.sort == "kind" and not pool:
            if need.name in have.off:
                said = f"step {need.step!r}: {why_off(need.name)}"
                return Problem(at, "kind-off", said, "use another kind, or a pool of workers")
            if have.kinds is not None and need.name not in have.kinds:
                return _no_tool(need, have.kinds)
        if need.sort == "participants" and not have.participants:
            said = f"step {need.step!r} asks participants, and no book of participants is given"
            return Problem(at, "no-participants", said, "give it with --participants FILE")
        if need.sort == "rule" and not (need.on_chain and have.chain):
            return _no_rule(need)
        return None


def _left_as_it_is(state: State) -> str:
    return f"run {state.run} is left as it is"


def _each_once(missing: Iterable[Problem]) -> list[Problem]:
    """One book serves all steps, however many ask, so only the first of them is named."""
    found: dict[str, Problem] = {}
    for one in missing:
        found.setdefault(one.code if one.code == "no-participants" else one.message, one)
    return list(found.values())


def _reminded(missing: Problem, begun: Mapping[str, str]) -> Problem:
    """The same, with what the run was started with."""
    book = begun.get(BOOK)
    if missing.code != "no-participants" or not book:
        return missing
    hint = f"it was started with {book}: give it with --participants"
    return Problem(missing.position, missing.code, missing.message, hint)


def _no_tool(need: Requirement, kinds: Collection[str]) -> Problem:
    said = f"step {need.step!r} needs the tool {need.name!r}, which is not registered here"
    hint = "--tools MODULE names the module that registers it"
    meant = did_you_mean(need.name, kinds)
    return Problem(need.position, "no-tool", said, f"{hint}; {meant}" if meant else hint)


def child_depth(above: int, most: int) -> int:
    """How deep a child is below the first run; refused where that is too deep."""
    if above + 1 > most:
        raise InputError(
            f"it would be a child {above + 1:,} runs below the first, which is too deep; the limit "
            f"child_depth_max is {most:,}: a definition that starts itself needs an end",
            code="too_deep",
        )
    return above + 1


def missing_children(
    net: Net, beside: Path, knows: Callable[[str], bool] = lambda _target: False
) -> Iterator[Problem]:
    """Child definitions that are named and not there: neither where this process runs, which is
    where an engine looks, nor beside the definition, nor in the catalog."""
    for child in net.children:
        path = Path(child.path)
        if not any(is_file(place) for place in (path, beside / path)) and not knows(child.path):
            message = f"there is no file {child.path} for the child, and the catalog has none"
            hint = (
                "file paths are relative to the folder of the engine; `anabranch register` "
                "and --catalog DIR make others known"
            )
            yield Problem(child.position, "missing-child", message, hint, "warning")


def is_file(path: str | Path) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def _no_rule(need: Requirement) -> Problem:
    why = "is not here, and no chain is configured" if need.on_chain else "is not here"
    hint = "give the rules with --rules" + (", or a chain with --rpc" if need.on_chain else "")
    said = f"the rule {need.name} of step {need.step!r} {why}"
    return Problem(need.position, "no-rule", said, hint)


def _no_server(need: Requirement, pool: str) -> Problem:
    said = (
        f"step {need.step!r} starts a child run, and its work on the cluster of pool {pool!r} "
        "cannot ask this engine for one"
    )
    hint = "use a server (`anabranch serve`) with values=server, or give the step another pool"
    return Problem(need.position, "no-server", said, hint)


def _no_workers(need: Requirement) -> Problem:
    said = (
        f"step {need.step!r} is for the workers of pool {need.name!r}, who ask a server: run it "
        f"on one (`anabranch serve`, --server URL), give the pool a cluster "
        f"(--pool {need.name}=dask://HOST:PORT), or let this process do their work "
        f"(ANABRANCH_POOLS_HERE={need.name})"
    )
    return Problem(need.position, "no-workers", said, "run it on a server")
