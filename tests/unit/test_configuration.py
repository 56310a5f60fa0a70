# SPDX-License-Identifier: GPL-2.0-only
"""What tools/packetflow makes of a configuration, and of a load that is refused."""

import re
import subprocess
from pathlib import Path

import pytest
from inside.grammar import KNOBS
from programs import load

program = load("packetflow")
SHIPPED = Path(__file__).resolve().parents[2] / "system" / "packetflow.conf"


def read(tmp_path: Path, text: str) -> tuple[list[str], list[tuple[str, str]]]:
    path = tmp_path / "packetflow.conf"
    path.write_text(text)
    modules, settings = program.read(path)
    return modules, [(one.name, one.value) for one in settings]


def test_what_is_shipped_does_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, SHIPPED.read_text()) == ([], [])


def test_what_is_shipped_makes_sense_without_its_signs(tmp_path: Path) -> None:
    lines = re.sub(r"^#(?=\S+ = )", "", SHIPPED.read_text(), flags=re.MULTILINE)
    modules, settings = read(tmp_path, lines)
    assert modules == list(program.MODULES)
    assert ("filter/mode", "enforce") in settings and len(settings) > 15


def test_settings_are_in_their_order(tmp_path: Path) -> None:
    text = "# of mine\n\nmodules = pf_filter  pf_mm\n mm/scale=1000 \nfilter/exempt = 68, 5060\n"
    found = (["pf_filter", "pf_mm"], [("mm/scale", "1000"), ("filter/exempt", "68, 5060")])
    assert read(tmp_path, text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modules = pf_filter\nfilter/floor 100\n", ":2: neither"),
        ("modules = pf_filters\n", ":1: no such module: pf_filters"),
        ("modules = pf_mm\nfilter/floor = 1\n", ":2: filter/floor is of pf_filter"),
        ("modules = pf_mm\n../x = 1\n", ":2: neither"),
        ("= 1\n", ":1: neither"),
        ("enable =\n", ":1: neither"),
        ("modules = pf_filter\nfilter/mdoe = observe\n", ":2: no such setting: filter/mdoe"),
        ("mdoules = pf_filter\n", ":1: no such setting: mdoules"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(program.Error, match=re.escape(said)):
        read(tmp_path, text)


def test_it_knows_every_setting() -> None:
    known = re.findall(r"^#(\S+) = ", SHIPPED.read_text(), re.MULTILINE)
    assert ("modules", "xdp", *program.SETTINGS) == tuple(known)


def test_the_tests_know_what_each_setting_takes() -> None:
    assert set(KNOBS) == set(program.SETTINGS)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"# f\xfcr\n")
    with pytest.raises(program.Error, match="not UTF-8"):
        program.read(tmp_path / "latin")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(program.Error, match="No such file"):
        program.read(tmp_path / "none")


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("modprobe: ERROR: could not insert 'pf_mm': Key was rejected by service", "mokutil"),
        ("modprobe: FATAL: Module pf_mm not found in directory /lib/modules/6", "dkms autoinstall"),
        ("modprobe: ERROR: could not insert 'pf_mm': Exec format error", "another kernel"),
        ("modprobe: ERROR: could not insert 'pf_mm': Unknown symbol in module", "packetflow stop"),
        ("modprobe: ERROR: could not insert 'pf_mm': Invalid argument", "modprobe.d"),
        ("modprobe: ERROR: something else", "dmesg"),
    ],
)
def test_a_refused_load_is_explained(
    monkeypatch: pytest.MonkeyPatch, said: str, advice: str
) -> None:
    refused = subprocess.CompletedProcess(["modprobe"], 1, "", said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(program.Error, match=advice) as error:
        program.load("pf_mm")
    assert said in str(error.value)


def test_a_locked_down_kernel_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = "modprobe: ERROR: could not insert 'pf_mm': Operation not permitted"
    refused = subprocess.CompletedProcess(["modprobe"], 1, "", said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    monkeypatch.setattr(program, "LOCKDOWN", tmp_path / "lockdown")
    (tmp_path / "lockdown").write_text("none [integrity] confidentiality\n")
    with pytest.raises(program.Error, match="locked down"):
        program.load("pf_mm")
