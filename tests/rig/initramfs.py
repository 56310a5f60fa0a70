# SPDX-License-Identifier: GPL-2.0-only
"""The initial file system of a guest.

It holds busybox, the stock kernel's own modules for the virtual devices, and
a script that mounts the root and hands over to the agent. The root is shared
read only, see share.py; a tmpfs laid over it takes the guest's writes.
"""

import lzma
import shutil
import subprocess
import tempfile
from pathlib import Path

from rig import share
from rig.kernels import Kernel

WANTED = ("virtio_pci", "virtio_console", "overlay", "virtio_net")

INIT = """\
#!/bin/busybox sh
set -e
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do
	[ ! -f "$module" ] || insmod "$module"
done
share() { MOUNT; }
share root /lower cache=loose
mount -t tmpfs upper /upper
mkdir /upper/data /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work root /new
mount -t proc proc /new/proc
mount -t sysfs sys /new/sys
mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts
ln -s /proc/self/fd /new/dev/fd
ln -s fd/0 /new/dev/stdin
ln -s fd/1 /new/dev/stdout
ln -s fd/2 /new/dev/stderr
for directory in dev/shm run tmp; do
	mount -t tmpfs -o mode=1777 tmpfs "/new/$directory"
done
for pair in tracefs:kernel/tracing debugfs:kernel/debug bpf:fs/bpf cgroup2:fs/cgroup; do
	type=${pair%%:*}
	[ ! -d "/new/sys/${pair#*:}" ] || mount -t "$type" "$type" "/new/sys/${pair#*:}"
done
mkdir -p "/new$packetflow_repo"
share repo "/new$packetflow_repo" cache=none
exec switch_root /new /usr/bin/python3 -I -S "$packetflow_repo/tests/rig/agent.py"
"""


def build(kernel: Kernel, target: Path) -> None:
    """Write the initial file system for a kernel to a file."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for directory in ("bin", "dev", "proc", "sys", "modules", "lower", "upper", "new"):
            (top / directory).mkdir()
        shutil.copy("/usr/bin/busybox", top / "bin")
        init = top / "init"
        mount = share.MOUNT_VIRTIOFS if share.by_virtiofs(kernel) else share.MOUNT_9P
        init.write_text(INIT.replace("MOUNT", mount))
        init.chmod(0o755)
        for number, module in enumerate(_modules(kernel)):
            data = module.read_bytes()
            if module.suffix == ".xz":
                data = lzma.decompress(data)
            (top / "modules" / f"{number:02}-{module.stem}").write_bytes(data)
        files = "\0".join(str(p.relative_to(top)) for p in sorted(top.rglob("*")))
        with target.open("wb") as out:
            subprocess.run(
                ["cpio", "--null", "--quiet", "--create", "--format=newc"],
                input=files.encode(),
                stdout=out,
                cwd=top,
                check=True,
            )


def _modules(kernel: Kernel) -> list[Path]:
    """The files of the wanted modules, each after those that it needs."""
    if kernel.debug:  # all built in
        return []
    sharing = ("virtiofs",) if share.by_virtiofs(kernel) else ("9pnet_virtio", "9p")
    wanted = (*WANTED, *sharing)
    listing = subprocess.run(
        ["modprobe", "--set-version", kernel.version, "--show-depends", "--all", *wanted],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = (line.split() for line in listing.stdout.splitlines())
    return list(dict.fromkeys(Path(w[1]) for w in lines if w[0] == "insmod"))
