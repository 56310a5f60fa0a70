# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own tests of network and netfilter: what passes on a stock kernel passes with us.

Two guests run them at a time, one without our modules, and behind it one with all of them and under
pressure, which gets what passed without. What passes without and not with is tried once more in
both. A test is stopped when its time is over; then it counts for nothing.

Reports, and each test's output, are in build/kernel-tests. What was found before with the same
kernel, tests and modules is not run again: remove that directory to have it so.
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
import time

from rig.kernels import Kernel, kernel, names
from rig.outcomes import modules_of

from selftests.arm import CPUS, Arm, Outcome
from selftests.report import Pair, line, report
from selftests.store import DIRECTORY, Store
from selftests.tree import Program, Tree


class Run:
    """All tests of a kernel, in both arms."""

    def __init__(self, on: Kernel, parts: list[str], seconds: float) -> None:
        self.kernel = on
        self.tree = Tree(on)
        self.seconds = seconds
        self.directory = DIRECTORY / on.name
        key = [on.version, self.tree.key, seconds, CPUS]
        self.without = Store(self.directory / "without", key)
        self.loaded = Store(self.directory / "with", [*key, modules_of(on)])
        self.tests = self.tree.tests(parts)
        self._begin = time.monotonic()
        self._done = 0

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._begin:5.0f} s] {text}", flush=True)

    def pair(self, test: Program) -> Pair | None:
        """What is known of it."""
        without = self.without.get(test)
        if without is None:
            return None
        loaded = self.loaded.get(test) if without.state == "pass" else None
        return Pair(str(test), without, loaded, self.tree.heeds_taint(test))

    def all(self) -> None:
        """One arm runs ahead, the other follows."""
        ready: queue.Queue[Program | None] = queue.Queue()
        failed: list[BaseException] = []

        def ahead() -> None:
            try:
                with Arm(self.kernel, self.tree, False, self.seconds) as arm:
                    for test in self.tests:
                        self._once(arm, self.without, test)
                        ready.put(test)
            except BaseException as error:
                failed.append(error)
            finally:
                ready.put(None)

        thread = threading.Thread(target=ahead, daemon=True)
        thread.start()
        with Arm(self.kernel, self.tree, True, self.seconds) as arm:
            while (test := ready.get()) is not None:
                if _state(self.without, test) == "pass":
                    self._once(arm, self.loaded, test)
                self._tell(test)
        thread.join()
        if failed:
            raise failed[0]

    def _once(self, arm: Arm, store: Store, test: Program) -> None:
        """Unless it is known; that a guest died is no answer."""
        if _state(store, test) in ("", "died"):
            store.put(test, arm.run(test))

    def _tell(self, test: Program) -> None:
        self._done += 1
        pair = self.pair(test)
        assert pair is not None
        self.say(f"{self._done}/{len(self.tests)} {line(pair)}")

    def again(self) -> None:
        """What passes without the modules only may have had bad luck."""
        spoiled = [t for t in self.tests if (pair := self.pair(t)) is not None and pair.spoiled]
        if not spoiled:
            return
        self.say(f"once more: {', '.join(map(str, spoiled))}")
        self._done -= len(spoiled)
        for loaded, store in ((False, self.without), (True, self.loaded)):
            with Arm(self.kernel, self.tree, loaded, self.seconds) as arm:
                for test in spoiled:
                    store.forget(test)
                    if not loaded or _state(self.without, test) == "pass":
                        self._once(arm, store, test)
        for test in spoiled:
            self._tell(test)

    def report(self) -> list[Pair]:
        pairs = [pair for test in self.tests if (pair := self.pair(test)) is not None]
        title = f"kernel {self.kernel.name} ({self.kernel.version}), {self.seconds:g} s for each"
        text = report(title, pairs)
        (self.directory / "report.txt").write_text(text)
        print(text, flush=True)
        return pairs


def _state(store: Store, test: Program) -> str:
    outcome: Outcome | None = store.get(test)
    return outcome.state if outcome else ""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests/selftests/run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kernel", default="6.12,7.x", help="joined by commas or spaces")
    parser.add_argument("--seconds", type=float, default=120, help="for each test (120)")
    parser.add_argument("parts", nargs="*", help="only tests with one of these in their name")
    options = parser.parse_args()
    spoiled = []
    for name in names(options.kernel):
        try:
            run = Run(kernel(name), options.parts, options.seconds)
        except LookupError as error:
            print(error, file=sys.stderr)
            return 2
        if not run.tests:
            print(f"no test of kernel {name} has such a name", file=sys.stderr)
            return 2
        run.say(f"kernel {name}: {len(run.tests)} tests, without the modules and with them")
        run.all()
        run.again()
        spoiled += [f"{name}: {pair.name}" for pair in run.report() if pair.spoiled]
    if spoiled:
        print("passes without the modules only: " + ", ".join(spoiled))
    return 1 if spoiled else 0


if __name__ == "__main__":
    sys.exit(main())
