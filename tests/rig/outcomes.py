# SPDX-License-Identifier: GPL-2.0-only
"""What the behaviour tests came to on each kernel, kept in build/compatibility.

A file a kernel, from which tools/compatibility makes a document. It holds each test's latest
outcome, of as many runs as were made, for as long as the modules are the same: what was found
with others is forgotten.

    kernel, version  the name, and what it stood for
    date             of the latest run
    modules          module: what of its sources counts, by a hash that it bears
    hooks            how the modules were attached, in words
    suite            file: how many tests it has for this kernel, run or not
    tests            file: {test: passed, again (at the second try), failed or skipped}
"""

import json
import subprocess
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from rig.kernels import BUILT, OPTIONAL, Kernel

DIRECTORY = BUILT / "compatibility"  # of mutants too, which are built elsewhere


class Outcomes:
    """Of one run."""

    def __init__(self) -> None:
        self._tests: dict[Kernel, dict[str, dict[str, str]]] = {}
        self._hooks: dict[Kernel, str] = {}
        self._suite: dict[Kernel, Counter[str]] = {}

    def collected(self, kernel: Kernel, file: str) -> None:
        """There is a test, whether it is run or not."""
        self._suite.setdefault(kernel, Counter())[file] += 1

    def note(self, kernel: Kernel, file: str, test: str, outcome: str) -> None:
        """The latest counts."""
        self._tests.setdefault(kernel, {}).setdefault(file, {})[test] = outcome

    def note_hooks(self, kernel: Kernel, hooks: str) -> None:
        self._hooks[kernel] = hooks

    def keep(self) -> None:
        """With what is known of the same modules already."""
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        for kernel, suite in self._suite.items():
            path = DIRECTORY / f"{kernel.name}.json"
            known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
            modules = modules_of(kernel)
            if known.get("modules") != modules:
                known = {}
            tests = self._tests.get(kernel, {})
            if not known and not tests:
                continue
            files = known.get("tests", {})
            for file, found in tests.items():
                files[file] = files.get(file, {}) | found
            told = {
                "kernel": kernel.name,
                "version": kernel.version,
                "date": datetime.now(UTC).date().isoformat(),
                "modules": modules,
                "hooks": self._hooks.get(kernel, known.get("hooks", "")),
                "suite": known.get("suite", {}) | suite,
                "tests": {file: dict(sorted(files[file].items())) for file in sorted(files)},
            }
            path.write_text(json.dumps(told, indent=1) + "\n")


def modules_of(kernel: Kernel) -> dict[str, str]:
    """What counts of the sources of those that are built for it."""
    paths = {
        name: kernel.build / ("common" if name == "pf_common" else name) / f"{name}.ko"
        for name in ("pf_common", *OPTIONAL)
    }
    return {
        name: subprocess.run(
            ["modinfo", "-F", "srcversion", str(path)], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name, path in paths.items()
        if path.exists()
    }
