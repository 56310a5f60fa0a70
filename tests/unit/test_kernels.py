# SPDX-License-Identifier: GPL-2.0-only
"""Which kernel a name stands for."""

import re
from pathlib import Path

import pytest
from rig import kernels

INSTALLED = (
    "6.1.0-9-amd64",
    "6.1.0-56-amd64",
    "6.1.0-57-rt-amd64",
    "6.1.0-58-cloud-amd64",
    "6.12.117+deb13-amd64",
    "6.12.117+deb13-rt-amd64",
    "6.12.115+deb13.1-rt-amd64",
    "7.2.12+deb13-amd64",
    "7.3.4+deb13-amd64",
    "7.2.12+deb13-cloud-amd64",
    "6.1.50",
)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("6.1", "6.1.0-56-amd64"),
        ("6.1-rt", "6.1.0-57-rt-amd64"),
        ("6.1-cloud", "6.1.0-58-cloud-amd64"),
        ("6.12", "6.12.117+deb13-amd64"),
        ("6.12-rt", "6.12.117+deb13-rt-amd64"),
        ("7.x", "7.3.4+deb13-amd64"),
        ("7.x-cloud", "7.2.12+deb13-cloud-amd64"),
    ],
)
def test_the_newest_of_the_name(
    name: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for directory in INSTALLED:
        (tmp_path / directory / "build").mkdir(parents=True)
        (tmp_path / directory / "vmlinuz").touch()
    monkeypatch.setattr(kernels, "MODULES", tmp_path)
    assert kernels.kernel(name).version == version
    for absent in ("6", "6.17", "6.12-cloud", "7.3", "7.x-rt", ""):
        with pytest.raises(LookupError, match="tools/kernel"):
            kernels.kernel(absent)


def test_names_are_joined_by_spaces_or_commas() -> None:
    assert kernels.names("6.1 6.12-rt,7.x") == ["6.1", "6.12-rt", "7.x"]
    assert kernels.names(" 6.1, 7.x ") == ["6.1", "7.x"]
    assert kernels.names("all") == list(kernels.SERIES)
    assert kernels.names("6.12-rt,all") == ["6.12-rt", *kernels.SERIES]


def test_a_kernel_offers_the_drivers_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers = tmp_path / "6.1.0-56-amd64" / "kernel/drivers/net"
    (drivers / "realtek").mkdir(parents=True)
    (drivers / "realtek/8139cp.ko.xz").touch()
    (drivers / "veth.ko").touch()
    monkeypatch.setattr(kernels, "MODULES", tmp_path)
    stock, built_in = (
        kernels.Kernel("", version, tmp_path, tmp_path)
        for version in ("6.1.0-56-amd64", "6.1.192-debug")
    )
    assert [stock.offers(name) for name in ("8139cp", "veth", "8139")] == [True, True, False]
    assert not built_in.offers("8139cp")


def test_texts_name_the_kernels_that_are_tested() -> None:
    for file in ("README.md", "Makefile"):
        text = (kernels.REPO / file).read_text()
        absent = [name for name in kernels.SERIES if not re.search(rf"\b{name}\b", text)]
        assert not absent, f"{file} does not name {absent}"


def test_kernels_are_in_the_order_of_their_age() -> None:
    """The quick set has the oldest and the newest."""
    assert list(kernels.SERIES) == sorted(
        kernels.SERIES, key=lambda name: [int(part) for part in re.findall(r"\d+", name)]
    )
