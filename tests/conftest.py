# SPDX-License-Identifier: GPL-2.0-only
"""Options that all tests share."""

import random

import hypothesis
import pytest
from rig.kernels import DEBUG, SERIES, kernel, names
from rig.quick import left_out

# How long a case takes is the host's affair.
hypothesis.settings.register_profile(
    "packetflow", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("packetflow")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kernel",
        default="all",
        help=f"kernels to test on, joined by commas: all ({', '.join(SERIES)}), others that"
        f" tools/kernel installs, such as 6.12-rt, and {', '.join(DEBUG)}",
    )
    parser.addoption(
        "--packets",
        type=int,
        default=20_000,
        help="how many the tests of peace send (20000; the full set: 50000; a release: 10 million)",
    )
    parser.addoption(
        "--cycles",
        type=int,
        default=20,
        help="how often the modules are loaded under traffic, and while somebody is boosted,"
        " on each kernel (20; a release: 200)",
    )
    parser.addoption(
        "--frames",
        type=int,
        default=20_000,
        help="how many of all kinds come to the hook, and to the driver (20000; the full set:"
        " 250000; a release: 10 million)",
    )
    parser.addoption(
        "--inputs",
        type=int,
        default=1_000,
        help="how many are written to /proc, read of it, and so on (1000; a release: 100000)",
    )
    parser.addoption(
        "--soak",
        type=float,
        default=0.5,
        metavar="MINUTES",
        help="how long everything comes and goes at once on four CPUs (0.5; a release: 30)",
    )
    parser.addoption(
        "--seed",
        type=int,
        default=random.randrange(1 << 32),
        help="what such inputs and packets are made from (by chance; shown where a test fails)",
    )
    parser.addoption(
        "--quick",
        default="",
        metavar="KERNELS",
        help="the quick set on these kernels, of which --kernel may be a part: what is marked for"
        " the full set is left out (tests/rig/quick.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    kernels(config)  # so that a wrong name ends the run before it begins


def kernels(config: pytest.Config) -> list[str]:
    """The names of the kernels that were asked for."""
    wanted = names(config.getoption("--kernel"))
    for name in wanted:
        try:
            kernel(name)
        except LookupError as error:
            raise pytest.UsageError(f"--kernel: {error}") from None
    return wanted


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On debug kernels alone, leave out what does not depend on the kernel; on others, what
    only they can tell."""
    out: list[pytest.Item] = []
    if set(kernels(config)) <= set(DEBUG):
        out += [item for item in items if "machine" not in getattr(item, "fixturenames", ())]
    running = kernels(config)
    quick = names(config.getoption("--quick")) if config.getoption("--quick") else []
    seen = set()
    for item in items:
        call = getattr(item, "callspec", None)
        machine = call.params.get("machine") if call else None
        which = (item.path, getattr(item, "originalname", item.name), machine)
        only_debug = machine and machine[0] not in DEBUG and item.get_closest_marker("debug")
        if only_debug or (quick and left_out(item, machine, quick, running, which in seen)):
            out.append(item)
        seen.add(which)
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
