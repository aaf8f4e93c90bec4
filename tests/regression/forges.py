"""A forge that lies in this process: comments of one pull request, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Standin:
    """What it was asked, and the comments it has."""

    address: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    forbidden: bool = False
    login: str | None = None
    """Of the token's own; None where it may not ask."""

    def answer(self, method: str, address: str, data: Any) -> tuple[int, Any]:
        parts = urlsplit(address)
        self.asked.append((method, parts.path))
        if parts.path.endswith("/pulls"):
            return 200, self.pulls
        if parts.path.endswith("/user"):
            answer = {"id": 7, "login": self.login}
            known = self.login or "/api/v4/" in address
            return (200, answer) if known else (403, {"message": "not by integration"})
        if method == "GET":
            page = int(parse_qs(parts.query)["page"][0])
            return 200, self.comments[100 * (page - 1) : 100 * page]
        if self.forbidden:
            return 403, {"message": "Resource not accessible by integration"}
        if method == "POST":
            mine = {"user": {"type": "Bot"}, "author": {"id": 7}, "id": len(self.comments) + 1}
            self.comments.append({**mine, **data})
            return 201, self.comments[-1]
        [one] = [c for c in self.comments if str(c["id"]) == parts.path.rpartition("/")[2]]
        one.update(data)
        return 200, one


@contextmanager
def standin() -> Iterator[Standin]:
    """One that listens as long as the block lasts."""
    made = Standin()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            data = json.loads(self.rfile.read(length)) if length else None
            code, body = made.answer(self.command, self.path, data)
            sent = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PATCH = do_PUT = handle_any  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
