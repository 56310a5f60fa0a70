# SPDX-License-Identifier: GPL-2.0-only
"""Commands that documents name: there is such a target, experiment, option and arm."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from experiments import main
from rig.kernels import REPO

RUN = "tests/experiments/run "
TARGETS = re.compile(r"^([a-z][a-z -]*):(?!=)", re.MULTILINE)


def documents() -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(REPO), "ls-files", "*.md"], capture_output=True, text=True, check=True
    )
    return [REPO / name for name in listed.stdout.split()]


def quoted(text: str) -> Iterator[str]:
    """What stands in backquotes, over ends of lines too, and lines that are indented."""
    for found in re.findall(r"(?<!`)`([^`]+)`(?!`)", text):
        yield " ".join(found.split())
    for line in re.findall(r"^ {4,}(\S.*)$", text, re.MULTILINE):
        yield line.partition(" # ")[0].strip()


def named(prefix: str) -> list[tuple[str, str]]:
    return sorted(
        {
            (str(document.relative_to(REPO)), command.removeprefix("sudo "))
            for document in documents()
            for command in quoted(document.read_text())
            if command.removeprefix("sudo ").startswith(prefix)
        }
    )


@pytest.mark.parametrize(("document", "command"), named("make "))
def test_targets_are_there(document: str, command: str) -> None:
    targets = set(" ".join(TARGETS.findall((REPO / "Makefile").read_text())).split())
    words = re.split(r" && | [|] ", command)[0].split()[1:]
    asked = {word for word in words if "=" not in word and re.fullmatch(r"[a-z-]+", word)}
    assert asked <= targets, f"{document}: {command}"


@pytest.mark.parametrize(("document", "command"), named(RUN))
def test_experiments_are_there(document: str, command: str) -> None:
    any_kernel = command.replace("--kernel K", "--kernel 6.12")
    words = shlex.split(any_kernel.removeprefix(RUN))
    if words and words[0].isupper() and not any(character.isdigit() for character in words[0]):
        return  # a placeholder
    main.parser().parse_args(words)
