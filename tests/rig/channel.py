# SPDX-License-Identifier: GPL-2.0-only
"""The host's end of the control channel: requests out, replies matched back.

A reply may come long after its request (a program ends), so a thread reads
and hands each reply to the future of its number. Number 0 is the agent's
greeting.
"""

import itertools
import json
import socket
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

Reply = dict[str, Any]


class Channel:
    """One guest's control channel."""

    def __init__(self, path: Path) -> None:
        self.greeting: Future[Reply] = Future()
        self._replies = {0: self.greeting}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._connection: socket.socket | None = None

    def accept(self, timeout: float) -> None:
        """Take the machine's connection; TimeoutError if it does not come."""
        self._listener.settimeout(timeout)
        self._connection, _ = self._listener.accept()
        threading.Thread(target=self._read, args=(self._connection,), daemon=True).start()

    def request(self, **fields: Any) -> Future[Reply]:
        """Send a request; the future fails with EOFError when the guest is gone."""
        assert self._connection is not None
        future: Future[Reply] = Future()
        with self._lock:
            if self._closed:
                raise EOFError
            number = next(self._numbers)
            self._replies[number] = future
            try:
                self._connection.sendall(json.dumps({"id": number, **fields}).encode() + b"\n")
            except OSError as error:
                raise EOFError from error
        return future

    def close(self) -> None:
        """After the machine's end; the reader then ends by itself."""
        self._listener.close()
        if self._connection is not None:
            self._connection.close()

    def _read(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as lines:
                for line in lines:
                    reply = json.loads(line)
                    with self._lock:
                        future = self._replies.pop(reply["id"])
                    future.set_result(reply)
        except OSError:
            pass
        with self._lock:
            self._closed = True
            for future in self._replies.values():
                future.set_exception(EOFError())
            self._replies.clear()
