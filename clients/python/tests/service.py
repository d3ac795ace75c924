"""The services of the tests: ratelimitd itself, and others in its place."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[3]
SUITE = ROOT / "clients" / "conformance"
BINARY = os.environ.get("RATELIMITD_BIN", str(ROOT / "bin" / "ratelimitd"))


class Service:
    """A ratelimitd of the suite's policies."""

    def __init__(self, *flags: str) -> None:
        self._flags = flags
        self.url = self._serve("127.0.0.1:0")

    def _serve(self, address: str) -> str:
        policies = str(SUITE / "policies.yaml")
        command = [BINARY, "serve", "--listen", address, "--policies", policies, *self._flags]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on http://"), line
        return line.removeprefix("listening on ").strip()

    def kill(self) -> None:
        """Kills the process, like a crash."""
        self._process.kill()
        self._process.communicate()

    def restart(self) -> None:
        """Starts it again at the same address."""
        self._serve(urlsplit(self.url).netloc)

    def pause(self) -> None:
        """Stops it, and returns once it has stopped: its threads run on after the signal."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


def serve(server: HTTPServer) -> None:
    """Serves until shutdown, with a shorter poll interval than the default of half a second."""
    server.serve_forever(poll_interval=0.01)


class Scripted:
    """An HTTP service that answers as a case says, and repeats the last answer."""

    def __init__(self, script: Any) -> None:
        self.requests = 0
        self._over = threading.Event()
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                n, scripted.requests = scripted.requests, scripted.requests + 1
                if script == "silent":
                    scripted._over.wait()
                    return
                answer = script[min(n, len(script) - 1)]
                if answer == "cut":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                body = answer["body"]
                content = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(answer["status"])
                for name, value in answer["headers"].items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=serve, args=(self._server,), daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
