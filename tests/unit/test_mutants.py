# SPDX-License-Identifier: GPL-2.0-only
"""Every mutant still applies, and the test that must notice it is there."""

import pytest
from mutants import MUTANTS, Mutant
from rig.kernels import REPO, SERIES


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies(mutant: Mutant) -> None:
    assert (REPO / mutant.file).read_text().count(mutant.old) == 1
    file, name = mutant.test.split("::")
    assert f"\ndef {name}(" in (REPO / "tests" / file).read_text()
    assert mutant.kernel in ("", *SERIES)
