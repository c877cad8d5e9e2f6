"""Which addresses a call may reach: one policy for all calls that texts of others can steer.

    any                       every address
    public                    addresses of the internet
    private                   local networks: 10/8, 172.16/12, 192.168/16, fc00::/7, 100.64/10, and
                              whatever else is not of the internet
    loopback                  this machine: 127/8, ::1, 0.0.0.0
    link_local                169.254/16, fe80::/10, and the metadata services of clouds
    192.168.7.0/24, fd12::1   a network or an address

A policy is a list of these. It is asked about addresses, never about names: the connector that
`connector_options` makes looks a name up, refuses it when one of its addresses is not allowed, and
connects to the very addresses that were checked. So a name cannot change between check and call,
and no spelling of an address (octal, one number, wrapped in IPv6) gets around it.

Redirects are steered by whoever answers, so they reach less than the first address, whatever the
policy says; see `AddressPolicy.after`.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from anabranch.errors import InputError

if TYPE_CHECKING:  # importing it takes a fifth of a second, paid with the first call
    import aiohttp

AddressClass = Literal["public", "private", "loopback", "link_local"]
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

CLASSES: frozenset[AddressClass] = frozenset({"public", "private", "loopback", "link_local"})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_V4_COMPATIBLE = ipaddress.ip_network("::/96")
_THIS_HOST = ipaddress.ip_network("0.0.0.0/8")  # connecting to 0.0.0.0 leads to this machine
#: Tunnels and translators of somebody's own; not every Python knows that these are not global.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in ("2001::/32", "64:ff9b:1::/48", "192.0.0.0/24", "100.64.0.0/10", "fec0::/10")
)
#: What clouds answer their machines at, beside link-local addresses: AWS and Google over IPv6 (the
#: metadata, the roles of pods, names and the time are neighbours there), Azure, Alibaba, Oracle.
_OF_CLOUDS = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("fd00:ec2::/32", "fd20:ce::/32"),
        *("168.63.129.16", "100.100.100.200", "192.0.0.192"),
    )
)
_WORDS: dict[AddressClass, str] = {
    "public": "a public",
    "private": "a private",
    "loopback": "a loopback",
    "link_local": "a link-local or metadata",
}


class AddressRefused(OSError):
    """The policy does not let a call reach this address. `strerror` says so in words."""


def class_of(text: str) -> AddressClass:
    """What kind of address this is, also when it is wrapped in one of the ways IPv6 knows."""
    return _class_of(_parsed(text))


def is_public(text: str) -> bool:
    return class_of(text) == "public"


def _parsed(text: str) -> IpAddress:
    bare = text.partition("%")[0]
    try:
        return ipaddress.ip_address(bare)
    except ValueError:
        # What the system takes for an address: octal, hexadecimal, fewer than four numbers.
        try:
            return ipaddress.IPv4Address(socket.inet_aton(bare))
        except OSError:
            raise ValueError(f"{text!r} is no address") from None


def _class_of(address: IpAddress) -> AddressClass:
    address = _unwrapped(address)
    if address.is_loopback or address.is_unspecified or address in _THIS_HOST:
        return "loopback"
    if address.is_link_local or any(address in one for one in _OF_CLOUDS):
        return "link_local"
    if address.is_multicast or address.is_reserved or any(address in one for one in _NOT_PUBLIC):
        return "private"
    return "public" if address.is_global else "private"


def _unwrapped(address: IpAddress) -> IpAddress:
    """The IPv4 address that a packet to this one ends up at, if it is one of those."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    wrapping = address in _NAT64 or (address in _V4_COMPATIBLE and int(address) > 1)
    if inner is None and wrapping:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


class AddressPolicy(msgspec.Struct, frozen=True):
    """Where calls may go, and the setting that says so. Equal policies can share connections."""

    setting: str = "http_addresses"
    text: str = "any"
    classes: frozenset[AddressClass] = CLASSES
    networks: tuple[IpNetwork, ...] = ()
    #: What a redirect may reach at most, and what it came from.
    within: frozenset[AddressClass] = CLASSES
    onward_from: str = ""

    @property
    def allows_all(self) -> bool:
        return self.classes == CLASSES == self.within

    def allows(self, text: str) -> bool:
        try:
            address = _unwrapped(_parsed(text))
        except ValueError:
            return False  # what it would lead to is not known
        kind = _class_of(address)
        listed = any(address in one for one in self.networks if one.version == address.version)
        return kind in self.within and (listed or kind in self.classes)

    def after(self, passed: Sequence[AddressClass]) -> AddressPolicy:
        """The policy for a redirect, given the kinds of the addresses that were on the way.

        A public server leads to public addresses only. Others lead also into local networks; to
        this machine and to link-local addresses only if the call began with one of that kind, or
        where the operator has named them (`any` names none in particular).
        """
        within: frozenset[AddressClass] = frozenset({"public", "private", *passed[:1]})
        onward_from = _WORDS[passed[0]]
        if "public" in passed:
            within, onward_from = frozenset({"public"}), _WORDS["public"]
        elif "any" not in self.text.split():
            within = CLASSES
        return msgspec.structs.replace(self, within=within, onward_from=onward_from)

    def refusal(self, text: str) -> str:
        """Why an address, or a name that means one, is refused, and what to do about it."""
        if msgspec.structs.replace(self, within=CLASSES).allows(text):
            return (
                f"{text} is {_WORDS[class_of(text)]} address, where a redirect from "
                f"{self.onward_from} one must not lead: call it directly if it is meant"
            )
        if self.text == "public":
            return (
                f"{text} is not a public address (setting {self.setting}): "
                f"{_to_allow_all(self.setting)} to allow it"
            )
        return f"{text} is not among the addresses that {self.setting} allows ({self.text})"

    def check(self, text: str) -> None:
        if not self.allows(text):
            raise AddressRefused(None, self.refusal(text))


ANY = AddressPolicy()


def _variable(setting: str) -> str:
    """A setting is a variable of the environment; one with a dot is a key of a file."""
    return f"`{setting}`" if "." in setting else f"ANABRANCH_{setting.upper()}"


def _to_allow_all(setting: str) -> str:
    if "." in setting:
        return f"write `{setting}: any` into the book"
    return f"start with {_variable(setting)}=any"


def read_policy(text: str, setting: str = "http_addresses") -> AddressPolicy:
    """The policy that a setting describes, or an `InputError` that names the word at fault."""
    words = text.replace(",", " ").lower().split()
    classes: set[AddressClass] = set()
    networks: list[IpNetwork] = []
    for word in words or ["any"]:
        if word == "any":
            classes |= CLASSES
        elif word in CLASSES:
            classes.add(word)
        else:
            networks.append(_network(word, setting))
    shown = " ".join(words) or "any"
    return AddressPolicy(setting, shown, frozenset(classes), tuple(networks))


def _network(word: str, setting: str) -> IpNetwork:
    try:
        return ipaddress.ip_network(word)
    except ValueError:
        raise InputError(
            f"{_variable(setting)} must be any, or a list of public, private, loopback, "
            f"link_local and networks such as 10.1.0.0/16, not {word!r}"
        ) from None


def connector_options(policy: AddressPolicy) -> dict[str, Any]:
    """What a `TCPConnector` needs so that it connects to nothing else."""
    if policy.allows_all:
        return {}
    return {"resolver": _checked_resolver(policy), "socket_factory": _checked_socket(policy)}


def _checked_resolver(policy: AddressPolicy) -> aiohttp.abc.AbstractResolver:
    """Its answers are all allowed; a name with any other address is refused as a whole."""
    import aiohttp.abc
    import aiohttp.resolver

    class CheckedResolver(aiohttp.abc.AbstractResolver):
        def __init__(self) -> None:
            self._inner = aiohttp.resolver.ThreadedResolver()

        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[aiohttp.abc.ResolveResult]:
            found = await self._inner.resolve(host, port, family)
            for one in found:
                policy.check(one["host"])
            return found

        async def close(self) -> None:
            await self._inner.close()

    return CheckedResolver()


def _checked_socket(policy: AddressPolicy) -> Any:
    """The last wall, whatever way an address came."""

    def make(found: Any) -> socket.socket:
        family, kind, protocol, _, address = found
        policy.check(address[0])
        return socket.socket(family, kind, protocol)

    return make


def refusal_in(error: BaseException) -> str:
    """The words of the policy where a client's error comes from it, else nothing."""
    cause = getattr(error, "os_error", error)
    return str(cause.strerror) if isinstance(cause, AddressRefused) else ""
