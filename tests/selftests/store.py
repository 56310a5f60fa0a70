# SPDX-License-Identifier: GPL-2.0-only
"""What was found before, kept in build/kernel-tests for as long as it holds.

Without our modules that is while kernel and tests are the same, with them while the modules are,
too. So a run that was broken off goes on, and the next one with other modules runs one arm only.
"""

import json
from pathlib import Path
from typing import Any

from rig.kernels import BUILT

from selftests.arm import Outcome
from selftests.tree import Program

DIRECTORY = BUILT / "kernel-tests"


class Store:
    """Of one arm on one kernel; `key` is all that its outcomes depend on."""

    def __init__(self, directory: Path, key: Any) -> None:
        self._directory = directory
        self._path = directory / "outcomes.json"
        self._key = json.loads(json.dumps(key))
        self._known: dict[str, Any] = {}
        if self._path.exists():
            told = json.loads(self._path.read_text())
            if told["key"] == self._key:
                self._known = told["outcomes"]

    def _log(self, test: Program) -> Path:
        return self._directory / f"{str(test).replace('/', '_')}.log"

    def get(self, test: Program) -> Outcome | None:
        known = self._known.get(str(test))
        if known is None or not self._log(test).exists():
            return None
        return Outcome(**known, log=self._log(test).read_text())

    def put(self, test: Program, outcome: Outcome) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._log(test).write_text(outcome.log)
        self._known[str(test)] = outcome.kept()
        told = {"key": self._key, "outcomes": self._known}
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(told, indent=1) + "\n")
        part.rename(self._path)

    def forget(self, test: Program) -> None:
        """It is to be run again."""
        self._known.pop(str(test), None)
