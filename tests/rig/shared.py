# SPDX-License-Identifier: GPL-2.0-only
"""One running guest shared by many tests, replaced when another is wanted."""

from contextlib import ExitStack, suppress

from rig.guest import Guest, GuestError
from rig.kernels import DEBUG, kernel
from rig.link import VIRTIO

# KASAN and lockdep, or KCSAN, make everything slower by about that, so its time runs slower too:
# what a test waits for comes in as many of the guest's seconds as on a stock kernel.
DEBUG_DILATION = 6.0
SLOW_DILATION = 3.0


class Machines:
    """At most one guest at a time: all have the same place on the link."""

    def __init__(self) -> None:
        self._key: tuple[str, int, bool, str, bool, bool] | None = None
        self._guest: Guest | None = None
        self._stack = ExitStack()

    def get(
        self,
        name: str,
        cpus: int,
        slow: bool = False,
        card: str = VIRTIO,
        counted: bool = False,
        alone: bool = False,
    ) -> Guest:
        """A running guest with that kernel and as many CPUs, perhaps in slow or counted time;
        alone: nobody sends to it from outside."""
        key = name, cpus, slow, card, counted, alone
        if self._guest is None or self._key != key:
            self.drop()
            dilation = SLOW_DILATION if slow else 1
            if name in DEBUG:
                dilation = DEBUG_DILATION
            queues = cpus if card == VIRTIO else 1
            if counted:
                wanted = Guest(kernel(name), cpus=cpus, icount=True, link=not alone, half=alone)
            else:
                wanted = Guest(kernel(name), cpus=cpus, queues=queues, card=card, dilation=dilation)
            self._guest = self._stack.enter_context(wanted)
            self._key = key
        return self._guest

    def drop(self) -> None:
        """End the guest, if there is one; an error if its kernel complained."""
        self._guest = None
        stack, self._stack = self._stack, ExitStack()
        stack.close()

    def give_up(self) -> None:
        """End a guest whose failure has been reported."""
        with suppress(GuestError):
            self.drop()
