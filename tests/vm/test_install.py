# SPDX-License-Identifier: GPL-2.0-only
"""What README tells users to type, where it can do no harm; how it is built is a unit test's."""

import re
import subprocess

import pytest
from rig.guest import Guest
from rig.kernels import REPO

pytestmark = pytest.mark.ends

# Looking at every module of the kernel, depmod takes minutes here: show it none but ours.
ALONE = """
set -e
modules=/lib/modules/$(uname -r)
mkdir /tmp/alone
cp -a $modules/build $modules/modules.builtin* $modules/modules.order /tmp/alone
mount --bind /tmp/alone $modules
"""
RESTORE = "umount /lib/modules/$(uname -r) && rm -r /tmp/alone"


def loaded(guest: Guest) -> set[str]:
    names = (line.split()[0] for line in guest.read("/proc/modules").splitlines())
    return {name for name in names if name.startswith("pf_")}


def test_installed_modules_are_loaded_and_unloaded_by_name(guest: Guest) -> None:
    if guest.kernel.debug:
        pytest.skip("its headers are not in the guest")
    make = f"make -C {guest.kernel.build}"
    guest.run(ALONE)
    guest.run(f"{make} install INSTALL_MOD_STRIP=1", timeout=150)
    guest.run("modprobe pf_filter")
    assert loaded(guest) == {"pf_common", "pf_filter"}
    guest.run("modprobe --all pf_sched pf_mm")
    assert loaded(guest) == {"pf_common", "pf_filter", "pf_sched", "pf_mm"}
    assert "[filter]" in guest.read("/proc/packetflow/status")
    assert guest.run("command -v packetflow-group").out
    guest.run("modprobe --remove pf_filter pf_sched pf_mm")
    assert loaded(guest) == set()
    guest.run(f"{make} uninstall")
    assert guest.run("modprobe pf_filter", check=False).rc
    guest.run(RESTORE)


def test_the_service_loads_and_sets_what_its_file_says(guest: Guest) -> None:
    if guest.kernel.debug:
        pytest.skip("its headers are not in the guest")
    program = str(REPO / "tools" / "packetflow")
    guest.run(ALONE)
    guest.run(f"make -C {guest.kernel.build} install INSTALL_MOD_STRIP=1", timeout=150)
    text = "modules = pf_filter pf_mm\nfilter/floor = 7\nmm/scale = 200\n"
    guest.write("/etc/packetflow.conf", text)
    guest.run([program, "check"])
    guest.run([program, "start"])
    assert loaded(guest) == {"pf_common", "pf_filter", "pf_mm"}
    assert guest.read("/proc/packetflow/filter/floor").strip() == "7"
    assert guest.read("/proc/packetflow/mm/scale").strip() == "200"
    assert guest.read("/proc/packetflow/enable").strip() == "1"
    # What is refused is told with its line, and the rest is set of what is loaded already.
    guest.write("/etc/packetflow.conf", text.replace("= 7", "= many"))
    guest.write("/proc/packetflow/mm/scale", "100")
    refused = ":2: the kernel does not take 'many' for filter/floor"
    done = guest.run([program, "start"], check=False)
    assert done.rc == 1 and refused in done.err
    assert guest.read("/proc/packetflow/filter/floor").strip() == "7"
    assert guest.read("/proc/packetflow/mm/scale").strip() == "200"
    guest.run([program, "stop"])
    assert loaded(guest) == set()
    guest.run([program, "stop"])
    # Nothing stays of a start that was refused something.
    assert refused in guest.run([program, "start"], check=False).err
    assert loaded(guest) == set()
    guest.write("/etc/packetflow.conf", text + "enable = 0\n")
    guest.run([program, "start"])
    assert guest.read("/proc/packetflow/enable").strip() == "0"
    guest.run([program, "stop"])
    guest.run(f"make -C {guest.kernel.build} uninstall")
    said = guest.run([program, "start"], check=False).err
    assert "pf_common was not loaded" in said and "dkms autoinstall" in said
    guest.run(RESTORE)


def test_each_module_finds_room_for_its_data_of_each_cpu(guest: Guest) -> None:
    """All modules of a machine have 8 KiB of static data for each CPU together."""
    found = [str(path) for path in guest.kernel.build.glob("*/*.ko")]
    listed = subprocess.run(["size", "-A", *found], capture_output=True, text=True, check=True)
    sizes = re.findall(r"^\.data\.\.percpu\s+(\d+)", listed.stdout, re.MULTILINE)
    assert sizes and sum(map(int, sizes)) < 2048, sizes
