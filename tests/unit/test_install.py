# SPDX-License-Identifier: GPL-2.0-only
"""Building and installing as README tells users to, against a stock kernel's headers."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from rig.kernels import REPO, kernel

pytestmark = pytest.mark.timeout(900)  # a busy machine builds slowly
UNITS = ("packetflow", "packetflow-group")
PROGRAMS = (*UNITS, "packetflow-xdp", "packetflow-flow")
SIGNED = b"~Module signature appended~\n"


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make(tree: Path, *arguments: str) -> None:
    run("make", "-C", tree, f"-j{os.cpu_count()}", f"KVER={kernel('6.1').version}", *arguments)


def files(top: Path) -> set[str]:
    return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as somebody has cloned them, and built."""
    made = tmp_path_factory.mktemp("packetflow")
    ignored = ["--exclude=.git", f"--exclude-from={REPO / '.gitignore'}"]
    run("rsync", "--archive", *ignored, f"{REPO}/", made)
    make(made)
    return made


def names(tree: Path) -> list[str]:
    """The modules, by directory and name."""
    return sorted(str(path.relative_to(tree)) for path in tree.glob("*/pf_*.ko"))


def typed(module: Path) -> bool:
    return " .BTF " in run("readelf", "--sections", "--wide", module)


@pytest.mark.full
def test_a_module_gets_its_types_where_headers_lack_the_kernels(tree: Path, tmp_path: Path) -> None:
    chosen, module = kernel("6.1"), tmp_path / "pf_filter.ko"
    command: list[str | Path] = [tree / "tools" / "module-types"]
    command += [chosen.headers, chosen.version, module]
    assert not (chosen.headers / "vmlinux").exists()
    assert typed(tree / "pf_filter" / "pf_filter.ko")
    run("objcopy", "--remove-section=.BTF", tree / "pf_filter" / "pf_filter.ko", module)
    before = module.read_bytes()
    told = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=True)
    assert "apt install pahole" in told.stdout and len(told.stdout.splitlines()) == 1
    assert module.read_bytes() == before
    assert run(*command) == "" and typed(module)
    ids = run("readelf", "--hex-dump=.BTF_ids", module)
    assert re.search(r"0x00000000 01000000 00000000 (?!00000000)\w{8} ", ids), ids


def test_dkms_is_told_of_every_module(tree: Path) -> None:
    told = (tree / "dkms.conf").read_text()
    places = re.findall(r'^BUILT_MODULE_LOCATION\[\d\]="(.*)"$', told, re.MULTILINE)
    modules = re.findall(r'^BUILT_MODULE_NAME\[\d\]="(.*)"$', told, re.MULTILINE)
    built = [f"{place}/{module}.ko" for place, module in zip(places, modules, strict=True)]
    assert sorted(built) == names(tree) != []


def test_what_is_installed_is_signed_and_all_of_it_uninstalled(tree: Path, tmp_path: Path) -> None:
    key, certificate, target = (tmp_path / name for name in ("key", "certificate", "target"))
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"]
    run(*request, "-keyout", key, "-outform", "DER", "-out", certificate)
    with pytest.raises(AssertionError, match="sign: no key"):
        make(tree, "sign", f"SIGN_KEY={tmp_path / 'none'}", f"SIGN_CERT={certificate}")
    make(tree, "sign", f"SIGN_KEY={key}", f"SIGN_CERT={certificate}")
    make(tree, "install", f"DESTDIR={target}")
    place = f"lib/modules/{kernel('6.1').version}/updates/packetflow"
    modules = {f"{place}/{name}" for name in names(tree)}
    programs = {f"usr/local/sbin/{name}" for name in PROGRAMS}
    found = files(target)
    assert {path for path in found if path.startswith("lib/")} == modules
    assert {path for path in found if "/sbin/" in path} == programs
    others = {path for path in found - modules - programs if "/share/" not in path}
    units = {f"usr/local/lib/systemd/system/{name}.service" for name in UNITS}
    assert others == {*units, "etc/packetflow.conf"}
    assert all((target / module).read_bytes().endswith(SIGNED) for module in modules)
    assert all(os.access(target / program, os.X_OK) for program in programs)
    for unit in units:
        (start,) = re.findall(r"^ExecStart=(\S+)", (target / unit).read_text(), re.MULTILINE)
        assert start.removeprefix("/") in programs
    strange = target / place / "pf_filter" / "other.ko"
    strange.touch()
    make(tree, "uninstall", f"DESTDIR={target}")
    assert files(target) == {str(strange.relative_to(target))}


def test_a_configuration_that_was_changed_stays(tree: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "etc" / "packetflow.conf"
    make(tree, "install-tools", f"DESTDIR={tmp_path}")
    configuration.write_text("modules = pf_filter\n")
    make(tree, "install-tools", f"DESTDIR={tmp_path}")
    make(tree, "uninstall", f"DESTDIR={tmp_path}")
    assert files(tmp_path) == {"etc/packetflow.conf"}
    assert configuration.read_text() == "modules = pf_filter\n"


@pytest.mark.skipif(not shutil.which("dkms"), reason="dkms is not in the root: run make setup")
def test_dkms_builds_installs_and_removes(tree: Path, tmp_path: Path) -> None:
    """In a mount namespace, where the root is only seen to change."""
    version = kernel("6.1").version
    script = f"""
        for top in usr var; do
            mkdir -p {tmp_path}/$top/new {tmp_path}/$top/work
            layers=lowerdir=/$top,upperdir={tmp_path}/$top/new,workdir={tmp_path}/$top/work
            mount -t overlay -o $layers overlay /$top
        done
        make -C {tree} dkms-install KVER={version} >&2
        echo >>{tree}/pf_mm/policy.c
        make -C {tree} dkms-install KVER={version} >&2
        cmp {tree}/pf_mm/policy.c /usr/src/packetflow-*/pf_mm/policy.c >&2
        modprobe --set-version {version} --show-depends pf_filter
        readelf -SW /lib/modules/{version}/updates/dkms/pf_filter.ko | grep -F ' .BTF ' >&2
        make -C {tree} dkms-remove >&2
    """
    unshared = ["unshare", "--mount", "--propagation", "unchanged"]
    found = run(*unshared, "sh", "-euc", script)
    place = f"/lib/modules/{version}/updates/dkms"
    assert found.split() == ["insmod", f"{place}/pf_common.ko", "insmod", f"{place}/pf_filter.ko"]
    left = files(tmp_path / "usr" / "new") | files(tmp_path / "var" / "new")
    assert not [path for path in left if "packetflow" in path or "pf_" in path]
