# SPDX-License-Identifier: GPL-2.0-only
"""The directories that a guest sees, read only: the root, and the repository.

QEMU itself serves them by 9p. Debian's cloud kernels have no 9p; those get them by virtiofs,
for which a daemon each is needed, and memory that it shares with the guest.
"""

import subprocess
import time
from pathlib import Path

from rig.kernels import REPO, Kernel

DAEMON = "/usr/libexec/virtiofsd"
# By the tag that the guest mounts it by: what it is, and whether the guest may take it for
# unchanged. What changes is looked at again after a second; without any cache 6.1 cannot load
# a large module from there.
SHARED = {"root": (Path("/mnt"), "always"), "repo": (REPO, "auto")}

# For the guest's first script; its arguments are tag, place, and options of 9p.
MOUNT_9P = 'mount -t 9p -o "ro,trans=virtio,version=9p2000.L,msize=262144,$3" "$1" "$2"'
MOUNT_VIRTIOFS = 'mount -t virtiofs -o ro "$1" "$2"'


def by_virtiofs(kernel: Kernel) -> bool:
    return kernel.name.endswith("-cloud")


class Share:
    """What serves a running machine. Ends with `end`."""

    def __init__(self, kernel: Kernel, directory: Path, memory_mib: int) -> None:
        self.options: list[str] = []
        self._daemons: list[subprocess.Popen[bytes]] = []
        if by_virtiofs(kernel):
            memory = f"memory-backend-memfd,id=memory,size={memory_mib}M,share=on"
            self.options += ["-object", memory, "-machine", "memory-backend=memory"]
        for tag, (path, cache) in SHARED.items():
            if by_virtiofs(kernel):
                self._serve(tag, path, cache, directory / f"{tag}.socket")
                continue
            readonly = "local,readonly=on,security_model=passthrough,multidevs=remap"
            self.options += ["-fsdev", f"{readonly},id={tag},path={path}"]
            self.options += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]

    def _serve(self, tag: str, path: Path, cache: str, socket: Path) -> None:
        socket.unlink(missing_ok=True)
        command = [DAEMON, f"--socket-path={socket}", f"--shared-dir={path}", f"--cache={cache}"]
        command += ["--sandbox=none", "--readonly", "--log-level=error"]
        self._daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        deadline = time.monotonic() + 10
        while not socket.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.options += ["-chardev", f"socket,id={tag},path={socket}"]
        self.options += ["-device", f"vhost-user-fs-pci,chardev={tag},tag={tag}"]

    def end(self) -> None:
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
