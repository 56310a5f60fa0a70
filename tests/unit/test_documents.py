# SPDX-License-Identifier: GPL-2.0-only
"""Links between the documents lead somewhere, and what they name or list is there."""

import re
import subprocess
from pathlib import Path

from rig.kernels import REPO

DESIGN = REPO / "docs" / "design.md"
LINK = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TEST = re.compile(r"\b((?:vm|unit)/test_\w+\.py)::(test_\w+)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    command = ["git", "-C", str(REPO), "-c", f"safe.directory={REPO}", "ls-files", "*.md"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    found = [REPO / name for name in names if (REPO / name).exists()]
    assert found
    return found


def anchors(document: Path) -> set[str]:
    """What its headings are called in a link."""
    headings = HEADING.findall(document.read_text())
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


def leads(link: str, document: Path) -> bool:
    file, _, anchor = link.partition("#")
    target = document.parent / file if file else document
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target)


def test_links_lead_to_what_is_there() -> None:
    astray = []
    for document in documents():
        for link in LINK.findall(CODE.sub("", document.read_text())):
            if not re.match(r"[a-z]+:", link) and not leads(link, document):
                astray.append(f"{document.relative_to(REPO)}: {link}")
    assert not astray, "\n".join(astray)


def test_every_place_where_a_packet_is_dropped_is_listed() -> None:
    """By the functions that tell tracers the cause."""
    function = re.compile(r"^static noinline .*\b(pflow_drop_\w+)\(", re.MULTILINE)
    sources = "".join(path.read_text() for path in REPO.glob("pf_*/*.c"))
    listed = re.findall(r"^\| `(pflow_drop_\w+)\(\)` \|", DESIGN.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(function.findall(sources))


def test_tests_that_documents_name_are_there() -> None:
    named, absent = 0, []
    for document in documents():
        for file, name in TEST.findall(document.read_text()):
            path, named = REPO / "tests" / file, named + 1
            if not path.exists() or f"\ndef {name}(" not in path.read_text():
                absent.append(f"{document.relative_to(REPO)}: {file}::{name}")
    assert named
    assert not absent, "\n".join(absent)


def test_every_file_of_a_module_has_its_place_on_the_map() -> None:
    """So that who looks for a concern finds its files."""
    guide = (REPO / "CONTRIBUTING.md").read_text()
    headings = r"(?:In|Of) `(common|pf_\w+)/`:\n(.*?)\n(?=(?:In|Of) `|A file has)"
    maps = dict(re.findall(headings, guide, re.DOTALL))
    for module in ("common", "pf_filter", "pf_sched", "pf_mm", "pf_flow"):
        files = {path.name for path in (REPO / module).rglob("*.c")}
        named = set(re.findall(r"`(\w+\.c)`", maps[module])) | {"main.c", "knobs.c"}
        assert named == {name for name in files if not name.endswith(".mod.c")}, module
