"""A small endpoint for `pages.yaml`: 25 rows in pages of ten, and one page that is busy at first.

python3 examples/pages_server.py        # until Ctrl-C; another port: … pages_server.py 9000
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

ROWS = [{"id": number} for number in range(1, 26)]
SIZE = 10
busy = {2}  # this page answers 503 once: the playbook tries it again


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = int(parse_qs(urlsplit(self.path).query).get("page", ["1"])[0])
        if page in busy:
            busy.remove(page)
            self.answer(503, {"error": "busy, ask again"})
            return
        rows = ROWS[(page - 1) * SIZE : page * SIZE]
        more = page * SIZE < len(ROWS)
        self.answer(200, {"rows": rows, "next_page": page + 1 if more else None})

    def answer(self, status: int, said: object) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8630
    with HTTPServer(("127.0.0.1", port), Pages) as server:
        print(f"http://127.0.0.1:{server.server_port}/items", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")
