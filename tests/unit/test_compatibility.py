# SPDX-License-Identifier: GPL-2.0-only
"""What is kept of test runs, and the document that is made of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from programs import load
from rig import outcomes
from rig.kernels import Kernel

KERNEL = Kernel("6.1-rt", "6.1.0-56-rt-amd64", Path("image"), Path("headers"))


def kept(kernel: str, tests: dict[str, dict[str, str]], hooks: str = "4 kprobes") -> dict[str, Any]:
    modules = {"pf_common": "A", "pf_filter": "B", "pf_sched": "C", "pf_mm": "D"}
    return {
        "kernel": kernel,
        "version": f"{kernel}.0",
        "date": "2026-11-22",
        "modules": modules,
        "hooks": hooks,
        "suite": {"test_a": 2, "test_b": 1},
        "tests": tests,
    }


def test_runs_add_up_while_the_modules_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "DIRECTORY", tmp_path)
    modules = {"pf_common": "A"}
    monkeypatch.setattr(outcomes, "modules_of", lambda _: dict(modules))

    def run(*found: tuple[str, str, str], hooks: str = "") -> Any:
        one = outcomes.Outcomes()
        for file, test, outcome in found:
            one.collected(KERNEL, file)
            one.note(KERNEL, file, test, outcome)
        if hooks:
            one.note_hooks(KERNEL, hooks)
        one.keep()
        return json.loads((tmp_path / "6.1-rt.json").read_text())

    run(("a", "one", "failed"), ("a", "two", "passed"), hooks="4 kprobes")
    told = run(("a", "one", "passed"), ("b", "three", "skipped"))
    assert told["tests"] == {"a": {"one": "passed", "two": "passed"}, "b": {"three": "skipped"}}
    assert (told["hooks"], told["version"]) == ("4 kprobes", KERNEL.version)
    assert told["suite"] == {"a": 1, "b": 1}
    modules["pf_common"] = "B"
    told = run(("a", "one", "failed"))
    assert (told["tests"], told["hooks"]) == ({"a": {"one": "failed"}}, "")


def test_the_document_tells_what_was_not_run_and_what_failed() -> None:
    whole = {"test_a": {"one": "passed", "two": "again"}, "test_b": {"three": "failed"}}
    text = load("compatibility").document(
        [kept("6.1", whole), kept("6.12-rt", {"test_a": {"one": "skipped"}}, hooks="")]
    )
    seen = "| 6.1 | 6.1.0 | yes | yes | 4 kprobes | 2 (1 again) | 1 | 0 | 0 | 2026-11-22 |"
    narrow = "| 6.12-rt | 6.12-rt.0 | yes | not seen | not seen | 0 | 0 | 1 | 2 | 2026-11-22 |"
    assert f"{seen}\n{narrow}\n" in text
    assert "| `test_a` | 2, 1 again | 0, 1 skipped, 1 not run |" in text
    assert "| `test_b` | 0, 1 failed | - |" in text
    assert "* 6.1: `test_b` `three`" in text
