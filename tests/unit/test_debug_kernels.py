# SPDX-License-Identifier: GPL-2.0-only
"""What tools/debug-kernel builds."""

import re

from rig.kernels import DEBUG, REPO

KERNELS = dict(
    re.findall(r'^\t\[(\S+)\]="(.*)"$', (REPO / "tools/debug-kernel").read_text(), re.MULTILINE)
)


def test_the_rig_knows_them_all() -> None:
    assert tuple(KERNELS) == DEBUG


def test_no_option_is_given_twice() -> None:
    for text in KERNELS.values():
        _, *fragments = text.split()
        given = [
            line.split("=")[0]
            for name in fragments
            for line in (REPO / f"tests/vm/debug/{name}.config").read_text().splitlines()
            if line.startswith("CONFIG_")
        ]
        assert len(given) == len(set(given)) > 100
