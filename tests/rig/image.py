# SPDX-License-Identifier: GPL-2.0-only
"""A kernel image in the form that boots fastest.

A bzImage unpacks itself in the guest, which takes an emulated processor some
seconds. The same kernel, unpacked here, is started by its PVH entry. It then
stands at its linked address, which also makes runs repeatable.
"""

import struct
import subprocess
import tempfile
from pathlib import Path

from rig.kernels import CACHE, Kernel

UNPACKERS = {b"\xfd7": "xz", b"(\xb5": "zstd", b"\x02!": "lz4"}


def bootable(kernel: Kernel) -> Path:
    """The file to boot, unpacked when first asked for.

    Debug kernels are left as they are: their PVH entry is compiled with KASAN,
    whose shadow memory does not exist yet there.
    """
    if kernel.debug:
        return kernel.image
    stamp = kernel.image.stat()
    target = CACHE / "vmlinux" / f"{kernel.version}-{stamp.st_size}-{int(stamp.st_mtime)}"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        # Two runs may unpack at a time, with the same process id in roots of their own.
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as partial:
            partial.write(_payload(kernel.image.read_bytes()))
        Path(partial.name).rename(target)
    return target


def _payload(image: bytes) -> bytes:
    """The kernel proper of a bzImage; Documentation/arch/x86/boot.rst of Linux."""
    setup_sectors = image[0x1F1]
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    packed = image[start : start + length - 4]  # the last four bytes are its size
    unpack = [UNPACKERS[packed[:2]], "--decompress", "--stdout"]
    return subprocess.run(unpack, input=packed, stdout=subprocess.PIPE, check=True).stdout
