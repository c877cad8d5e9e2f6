"""Who looks at the pages of a node: an operator who has shown the control token once.

The token is exchanged for a session in memory; it ends with the node, which draws a new token at
every start. Browsers send the cookies of a machine to every port of it, so its name has a part of
the id of the node: two nodes on one machine do not sign each other out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from aiohttp import web

from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.tokens import CONTROL_HEADER
from anabranch.market.node.node import Node
from anabranch.market.node.ports import Tokens
from anabranch.surfaces.http.guard.auth import set_session
from anabranch.surfaces.http.guard.browser_sessions import SESSION_MS, BrowserSessions

OPERATOR_SESSION = "operator"  # whose it is; a node has no other people
WRONG_TOKEN = (
    "This is not the token of the node. It is made anew whenever the node starts: read it again "
    "from the file authtok in the folder of the node."
)


class OperatorSessions:
    def __init__(self, node: Node, tokens: Tokens) -> None:
        self._tokens = tokens
        self._sessions = BrowserSessions(node.context.clock.now)
        own = hashlib.sha256(node.context.signer.node_id.encode()).hexdigest()[:12]
        self.cookie = f"anabranch_node_{own}"

    def find(self, request: web.Request) -> bool:
        """Whether the operator asks; forms of this request then carry the session's secret."""
        shown = request.cookies.get(self.cookie)
        session = self._sessions.find(shown) if shown else None
        if session is None:
            return False
        set_session(request, session)
        return True

    def begin(self, request: web.Request, response: web.Response, token: str) -> bool:
        """False for a wrong token: nothing has begun."""
        if not self._is_control(token):
            return False
        self._sessions.end(request.cookies.get(self.cookie, ""))
        text, _ = self._sessions.begin(OPERATOR_SESSION)
        response.set_cookie(
            self.cookie,
            text,
            httponly=True,
            samesite="Strict",
            path="/",
            max_age=SESSION_MS // 1000,
        )
        return True

    def end(self, request: web.Request, response: web.Response) -> None:
        self._sessions.end(request.cookies.get(self.cookie, ""))
        response.del_cookie(self.cookie, path="/", httponly=True, samesite="Strict")

    def _is_control(self, token: str) -> bool:
        headers: Mapping[str, str] = {CONTROL_HEADER.lower(): token.strip()}
        try:
            return self._tokens.caller(headers).scope == "operator"
        except NodeError:
            return False
