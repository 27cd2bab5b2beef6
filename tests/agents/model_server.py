"""A server that speaks OpenAI's chat completions over real HTTP, with answers from a script, broken ones too."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Answer = Callable[[http.server.BaseHTTPRequestHandler, dict[str, Any]], None]


class ModelServer:
    """Answers requests in the order of its script; the last answer is repeated.

    Attributes:
        requests: The bodies that came in.
        arrivals: When they came in, by `time.monotonic`.
        keys: What stood in their Authorization headers.
        released: Set at the end, so that an answer that hangs ends.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.arrivals: list[float] = []
        self.keys: list[str] = []
        self.released = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def question(self, number: int = -1) -> str:
        """All messages of a request as one text."""
        return "\n\n".join(message["content"] for message in self.requests[number]["messages"])

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.arrivals.append(time.monotonic())
                server.requests.append(body)
                server.keys.append(self.headers.get("Authorization", ""))
                answer = server.answers[min(len(server.requests), len(server.answers)) - 1]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    answer(self, body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def __enter__(self) -> ModelServer:
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


def chunk(content: str = "", finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": content} if content else {}, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def _begin(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()


def _send(handler: http.server.BaseHTTPRequestHandler, data: Any) -> None:
    text = data if isinstance(data, str) else json.dumps(data)
    handler.wfile.write(f"data: {text}\n\n".encode())
    handler.wfile.flush()


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def says(
    text: str, *, size: int = 40, usage: tuple[int, int] | None = (1000, 200), finish: str = "stop", reasoning: str = ""
) -> Answer:
    """A whole answer, streamed in pieces."""

    def answer(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        _begin(handler)
        if reasoning:
            thought = chunk()
            thought["choices"][0]["delta"]["reasoning_content"] = reasoning
            _send(handler, thought)
        for piece in _pieces(text, size):
            _send(handler, chunk(piece))
        _send(handler, chunk(finish=finish))
        if usage is not None:
            counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
            _send(handler, {**chunk(), "choices": [], "usage": counts})
        _send(handler, "[DONE]")

    return answer


def fails(status: int, message: str = "no", *, code: str | None = None, **headers: str) -> Answer:
    """An HTTP error as OpenAI reports it."""

    def answer(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        data = json.dumps({"error": {"message": message, "type": "error", "param": None, "code": code}}).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def breaks_off(text: str) -> Answer:
    """The stream ends in the middle, as if it were whole."""

    def answer(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        _begin(handler)
        _send(handler, chunk(text))

    return answer


def disconnects(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
    """The connection is cut in the middle of a chunk that was announced."""
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"400\r\ndata: {")
    handler.wfile.flush()
    handler.close_connection = True


def babbles(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
    """A stream of what is no JSON."""
    _begin(handler)
    _send(handler, '{"choices": [')


def surprises(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
    """A stream of JSON that is nothing like an answer."""
    _begin(handler)
    for odd in ([1, 2], {"choices": None}, {"choices": [None]}, {"choices": [{"delta": None}]}, 7, {"usage": "much"}):
        _send(handler, odd)
    _send(handler, "[DONE]")


def hangs(server: list[ModelServer]) -> Answer:
    """Takes the request and never answers, until the server ends."""

    def answer(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        server[0].released.wait(60)

    return answer


def whole_file(source: str, hypothesis: str = "half as many loads, 5 % less") -> str:
    """An answer with a whole file."""
    return f"HYPOTHESIS: {hypothesis}\n\n```python\n{source}```\n"


def edit(search: str, replace: str, hypothesis: str = "twice the speed") -> str:
    """An answer with one edit."""
    return f"HYPOTHESIS: {hypothesis}\n\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"
