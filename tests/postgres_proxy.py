"""A proxy before a PostgreSQL server that loses connections at chosen commits.

It reads the messages of the client as they pass, so it knows when a COMMIT does, or a statement
that is a transaction of its own, as those of turns are:

    before   the connection is lost, and the server never hears of the COMMIT
    after    the server commits, and the client never hears of it
    late     the connection is lost first; the server hears of the COMMIT a moment later
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Literal

Fault = Literal["before", "after", "late"]
LATE_SECONDS = 0.3
_TURN = b"WITH move_partitions AS"  # the first words of the statement that writes one
_READY_IDLE = b"Z\x00\x00\x00\x05I"  # no transaction is open


class CommitProxy:
    """Listens on a loopback port; `commits` counts those that passed since it was armed."""

    def __init__(self, server_socket: str) -> None:
        self._server_socket = server_socket
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._lock = threading.Lock()
        self._fault: tuple[int, Fault] | None = None
        self.open: set[_Link] = set()
        self.commits = 0
        self.lost = 0
        self.refuse = False  # new connections
        self.cut_off = False  # with the fault, for good
        self._closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, commit: int, fault: Fault | None) -> None:
        """Lose the connection at this commit from now on, counted from 1."""
        with self._lock:
            self.commits, self.lost = 0, 0
            self._fault = (commit, fault) if fault is not None else None

    def lead_to(self, server_socket: str) -> None:
        """Connections end, and new ones come to another server."""
        self._server_socket = server_socket
        self.drop_all()

    def close(self) -> None:
        self._closing = True
        self._listening.close()
        self.drop_all()

    def drop_all(self) -> None:
        for link in list(self.open):
            link.drop()

    def committing(self) -> Fault | None:
        with self._lock:
            self.commits += 1
            if self._fault is None or self.commits != self._fault[0]:
                return None
            self.lost += 1
            self.refuse = self.refuse or self.cut_off
            return self._fault[1]

    def _accept(self) -> None:
        while not self._closing:
            with suppress(OSError):
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    if self.refuse:
                        raise ConnectionRefusedError
                    server.connect(self._server_socket)
                except OSError:
                    client.close()
                    server.close()
                    continue
                link = _Link(self, client, server)
                self.open.add(link)
                link.start()


class _Link:
    """One connection, in two threads."""

    def __init__(self, proxy: CommitProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client, self._server = client, server
        self._texts: dict[bytes, bytes] = {}  # prepared statements by name
        self._started = False
        self._in_transaction = False
        self._holding = threading.Event()  # what the server says is for nobody any more

    def start(self) -> None:
        threading.Thread(target=self._outward, daemon=True).start()
        threading.Thread(target=self._inward, daemon=True).start()

    def drop(self) -> None:
        self._proxy.open.discard(self)
        for one in (self._client, self._server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _inward(self) -> None:
        """From the server to the client."""
        with suppress(OSError):
            while data := self._server.recv(65_536):
                if not self._holding.is_set():
                    self._client.sendall(data)
                elif _READY_IDLE in data:
                    break
        self.drop()

    def _outward(self) -> None:
        """From the client to the server, message by message."""
        waiting = b""
        with suppress(OSError):
            while data := self._client.recv(65_536):
                waiting += data
                whole, waiting = self._split(waiting)
                for number, message in enumerate(whole):
                    if self._commits(message) and not self._pass_commit(whole[number:], waiting):
                        return
                    self._server.sendall(message)
        if not self._holding.is_set():
            self.drop()

    def _pass_commit(self, rest: list[bytes], waiting: bytes) -> bool:
        """False when the rest was seen to: what the client has sent from the commit on."""
        fault = self._proxy.committing()
        if fault is None:
            return True
        if fault == "before":
            self.drop()
            return False
        self._holding.set()
        if fault == "after":
            return True
        while rest[-1][:1] not in (b"S", b"Q"):  # with a Sync it is whole
            waiting += self._client.recv(65_536)
            more, waiting = self._split(waiting)
            rest += more
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        time.sleep(LATE_SECONDS)
        with suppress(OSError):
            self._server.sendall(b"".join(rest))
        return False

    def _split(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Whole messages, and what is left. The first of a connection has no letter."""
        whole: list[bytes] = []
        while True:
            head = 1 if self._started else 0
            if len(data) < head + 4:
                return whole, data
            size = head + struct.unpack(">i", data[head : head + 4])[0]
            if len(data) < size:
                return whole, data
            message, data = data[:size], data[size:]
            if not self._started:
                code = struct.unpack(">i", message[4:8])[0]
                self._started = code >> 16 == 3  # before that it asks for encryption
            whole.append(message)

    def _commits(self, message: bytes) -> bool:
        kind, body = message[:1], message[5:]
        if kind == b"P":
            name, text = body.split(b"\0")[:2]
            self._texts[name] = text
        if kind not in (b"Q", b"B"):
            return False
        text = body.rstrip(b"\0") if kind == b"Q" else self._texts.get(body.split(b"\0")[1], b"")
        word = text.strip().upper()
        if word in (b"BEGIN", b"COMMIT", b"ROLLBACK"):
            self._in_transaction = word == b"BEGIN"
        return word == b"COMMIT" or (not self._in_transaction and text.startswith(_TURN))
