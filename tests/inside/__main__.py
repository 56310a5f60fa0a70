# SPDX-License-Identifier: GPL-2.0-only
"""Serves tests in the guest: a request is a line [FILE, FUNCTION, ARGUMENTS, PINNED].

Each test runs in a child, so that all it opened is closed when it ends, but
Python and the test's file are loaded once.
"""

import importlib.util
import json
import os
import tempfile
import traceback
from types import ModuleType
from typing import Any

from inside import REPLIES, REQUESTS, Skip, suite
from inside.net import ip

modules: dict[str, ModuleType] = {}


def load(file: str) -> ModuleType:
    if file not in modules:
        spec = importlib.util.spec_from_file_location("body", file)
        assert spec is not None and spec.loader is not None
        modules[file] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[file])
    return modules[file]


def play(
    module: ModuleType, function: str, arguments: dict[str, Any], pinned: bool
) -> dict[str, object]:
    """Run the test; what it has to say, if anything, and whether that is why it was skipped."""
    if pinned and len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {0})
    os.unshare(os.CLONE_NEWNET)
    ip("link set lo up")
    suite.begin()
    try:
        getattr(module, function)(**arguments)
    except Skip as reason:
        return {"skip": True, "text": str(reason)}
    except Exception as error:
        # There is nobody to explain a bare assert here: show what it was about.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        found = traceback.TracebackException.from_exception(error, capture_locals=True)
        lines = "".join(found.format()).splitlines()
        return {"skip": False, "text": "\n".join(line[:300] for line in lines)}
    return {"skip": False, "text": ""}


def serve(request: str) -> str:
    file, function, arguments, pinned = json.loads(request)
    with tempfile.TemporaryFile("w+") as answer:
        child = os.fork()
        if not child:
            try:
                json.dump(play(load(file), function, arguments, pinned), answer)
                answer.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        answer.seek(0)
        return answer.read() or '{"skip": false, "text": "the test died"}'


with os.fdopen(os.open(REQUESTS, os.O_RDWR), "r") as requests:
    for line in requests:
        load(json.loads(line)[0])
        text = serve(line)
        with open(REPLIES, "w") as replies:
            replies.write(text)
