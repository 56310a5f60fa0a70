# SPDX-License-Identifier: GPL-2.0-only
"""A kernel image in the form that boots fastest.

A bzImage unpacks itself in the guest, which takes an emulated CPU some
seconds. The same kernel, unpacked here, is started by its PVH entry. It then
stands at its linked address, which also makes runs repeatable.
"""

import tempfile
from pathlib import Path

from programs import load

from rig.kernels import CACHE, Kernel


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
            partial.write(load("module-types").unpacked(kernel.image.read_bytes()))
        Path(partial.name).rename(target)
    return target
