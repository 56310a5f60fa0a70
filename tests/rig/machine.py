# SPDX-License-Identifier: GPL-2.0-only
"""The virtual machine: QEMU's process and its command line.

Hardware virtualization is used where it works, which only a trial can tell:
a /dev/kvm can exist and still not run a stock kernel.

A dilated machine lives in slow time: all its clocks run slower than the host's
by that factor, and so, in its own time, its CPU and the host around it are
faster by it. That makes an emulated machine as fast as the experiments need it,
and leaves every proportion of rates, buffers and time slices as it is (Gupta et
al., "To infinity and beyond: time-warped network emulation", NSDI 2006).
"""

import os
import subprocess
from pathlib import Path

from rig.kernels import CACHE, REPO
from rig.share import Share

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
COMMAND_LINE = (
    "console=ttyS0 printk.time=1 printk.devkmsg=on loglevel=7 panic=-1 panic_on_oops=1 oops=panic"
)


class Machine:
    """A running QEMU. Ends with `end`; holds nothing that must be saved."""

    def __init__(
        self,
        image: Path,
        directory: Path,
        *,
        cpus: int,
        memory_mib: int,
        accelerator: list[str],
        network: list[str],
        share: Share,
        dilation: float = 1,
        options: str = "",
        plugin: str = "",
    ) -> None:
        self._share = share
        arguments = [
            "qemu-system-x86_64",
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-vga", "none"),
            *accelerator,
            *("-smp", str(cpus), "-m", f"{memory_mib}M"),
            *("-name", "packetflow,debug-threads=on"),
            *("-kernel", str(image), "-initrd", str(directory / "initramfs")),
            *("-append", f"{COMMAND_LINE} {options} packetflow_repo={REPO}"),
            *("-serial", f"file:{directory / 'log'}"),
            *("-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=control,path={directory / 'control'}"),
            *("-device", "virtserialport,chardev=control,name=packetflow"),
            *share.options,
            *network,
            *(("-plugin", plugin) if plugin else ()),
        ]
        self._errors = directory / "errors"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                arguments,
                env=os.environ | (slow_time(dilation) if dilation != 1 else {}),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )

    def ended(self) -> bool:
        return self._process.poll() is not None

    def errors(self) -> str:
        """What QEMU itself had to say."""
        return self._errors.read_text(errors="replace")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._share.end()

    def pin(self) -> None:
        """Virtual CPUs to the first host CPU, all other threads to the rest."""
        first, *rest = sorted(os.sched_getaffinity(0))
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            virtual = (task / "comm").read_text().strip().endswith(("/TCG", "/KVM"))
            os.sched_setaffinity(int(task.name), {first} if virtual else rest or {first})


def slow_time(dilation: float) -> dict[str, str]:
    """The environment in which a program's clock runs slower by that factor."""
    return {"LD_PRELOAD": FAKETIME, "FAKETIME": f"+0 x{1 / dilation:.9f}"}


def accelerators(icount: bool, half: bool = False) -> list[list[str]]:
    """What to try, best first; `settle` records the outcome. Counted, an instruction takes a
    nanosecond, or two.

    Emulation gets two tries: with several virtual CPUs a boot now and then
    loses a timer for good. All of them take turns in one thread of the host: in threads of
    their own they may go on executing code that another one has overwritten (QEMU looks for
    its translations before the write is done, and one made in between stays), and kernels
    overwrite theirs wherever they are probed.
    """
    if icount:
        return [["-accel", "tcg", "-icount", f"shift={int(half)},sleep=off"]] * 2
    # A smaller buffer of translated code stays in the host's caches and TLBs.
    tcg = ["-accel", "tcg,thread=single,tb-size=256"]
    kvm = ["-accel", "kvm", "-cpu", "host"]
    wanted = os.environ.get("PACKETFLOW_ACCEL") or _settled()
    if wanted == "kvm":
        return [kvm]
    return [tcg, tcg] if wanted == "tcg" or not Path("/dev/kvm").exists() else [kvm, tcg, tcg]


def emulated() -> bool:
    """Is hardware virtualization not even to be tried?"""
    return all("kvm" not in accelerator for accelerator in accelerators(icount=False))


def settle(accelerator: list[str]) -> None:
    """Remember what worked, until this host boots again."""
    _record().write_text(accelerator[1].partition(",")[0])


def _settled() -> str:
    try:
        return _record().read_text()
    except OSError:
        return ""


def _record() -> Path:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return CACHE / f"accelerator-{boot}"
