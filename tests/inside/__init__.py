# SPDX-License-Identifier: GPL-2.0-only
"""Tests whose body runs in the guest.

    @inside()
    def test_something(port: int) -> None:
        ...                         # plain Python, in the guest, as root

On the host the function is an ordinary test with the fixture `guest`: the
modules are loaded, and the body is run by the guest's own Python, in a child
process and a network namespace that die with it. The guest does not have to
import pytest, which takes seconds there; so such files take `mark` from here.
"""

import functools
import inspect
import json
import signal
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
REQUESTS, REPLIES = "/run/inside-requests", "/run/inside-replies"
BUILD = "PACKETFLOW_BUILD"  # in the guest's environment: where its kernel's modules are

ON_HOST = "pytest" in sys.modules


def _unmarked(*arguments: Any, **_: Any) -> Any:
    """A mark stands with arguments or, bare, in front of the function itself."""
    bare = len(arguments) == 1 and callable(arguments[0])
    return arguments[0] if bare else lambda function: function


class _NoMark:
    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _unmarked


if ON_HOST:
    import pytest
    from rig.programs import programs

    mark: Any = pytest.mark
else:
    mark = _NoMark()

_servers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class Skip(Exception):
    """Raised by a body that cannot run on this kernel; says why."""


def inside(
    timeout: float = 60.0,
    load: bool = True,
    modules: Sequence[str] = ("pf_filter",),
    pinned: bool = True,
    expect: str = "",
    **parameters: dict[str, object],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have the function run in the guest.

    The modules' parameters are given by module. Tests of the same modules and
    without any parameters share them loaded, and leave the knobs as they found them.
    Pinned to the first CPU, a body finds counters as exact on several as on one. What is
    expected in the kernel's log is no complaint until it has ended.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        if not ON_HOST:
            return body

        @functools.wraps(body)
        def test(guest: Any, **arguments: Any) -> None:
            with guest.expecting(expect) if expect else nullcontext():
                run(guest, arguments)

        def run(guest: Any, arguments: dict[str, Any]) -> None:
            if parameters or not load or guest.loaded != ["pf_common", *modules]:
                guest.unload()
            if load:
                guest.load(*modules, **parameters)
            what = [inspect.getfile(body), body.__name__, arguments, pinned]
            reply = _ask(guest, json.dumps(what) + "\n", timeout)
            if parameters:
                guest.unload()
            if reply["skip"]:
                pytest.skip(reply["text"])
            if reply["text"]:
                pytest.fail(f"in the guest:\n{reply['text']}", pytrace=False)

        own = inspect.signature(body).parameters.values()
        guest = inspect.Parameter("guest", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        test.__signature__ = inspect.Signature([guest, *own])  # type: ignore[attr-defined]
        del test.__wrapped__  # type: ignore[attr-defined]
        return mark.keeps_modules(test)  # type: ignore[no-any-return]

    return decorate


def _ask(guest: Any, request: str, timeout: float) -> dict[str, Any]:
    if guest not in _servers:
        programs()
        guest.run(["rm", "-f", REQUESTS, REPLIES])
        guest.run(["mkfifo", REQUESTS, REPLIES])
        command = [
            "env",
            "-C",
            str(TESTS),
            f"{BUILD}={guest.kernel.build}",
            "python3",
            "-m",
            "inside",
        ]
        _servers[guest] = guest.spawn(command)
    try:
        guest.write(REQUESTS, request)
        reply: dict[str, Any] = json.loads(guest.run(["cat", REPLIES], timeout=timeout).out)
    except BaseException:
        _servers.pop(guest).signal(signal.SIGKILL)
        raise
    return reply
