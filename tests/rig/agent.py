# SPDX-License-Identifier: GPL-2.0-only
"""The guest's end of the control channel: process 1 of a guest.

Requests and replies are lines of JSON over a virtio serial port. Programs
write to memory files, so that neither a full pipe nor a forgotten child holds
anything up. Python starts slowly under emulation, so only the cheapest modules
are imported; for the same reason nothing of the rig is.
"""

import json
import os
import select
import signal

PORT = "packetflow"

Fields = dict  # what a line of JSON holds


class Child:
    """A program that was started, until its end has been collected."""

    def __init__(self, request: Fields) -> None:
        self.session = request["session"]
        self.waiting: list[int] = []
        self.status: int | None = None
        self.files = [os.memfd_create(name) for name in ("out", "err")]
        started, starting = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            self._become(request)
        os.close(starting)
        os.read(started, 1)  # its end: the program runs, in its own session
        os.close(started)

    def _become(self, request: Fields) -> None:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if self.session:
                os.setsid()
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(self.files[0], 1)
            os.dup2(self.files[1], 2)
            os.setpriority(os.PRIO_PROCESS, 0, request["nice"])
            os.execvp(request["argv"][0], request["argv"])
        except OSError as error:
            os.write(2, f"{request['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127)

    def result(self) -> Fields:
        texts = []
        for file in self.files:
            os.lseek(file, 0, os.SEEK_SET)
            with os.fdopen(file, "rb") as stream:
                texts.append(stream.read().decode(errors="replace"))
        assert self.status is not None
        return {"rc": os.waitstatus_to_exitcode(self.status), "out": texts[0], "err": texts[1]}


class Agent:
    def __init__(self, port: int) -> None:
        self.port = port
        self.children: dict[int, Child] = {}
        self.last = 0

    def reply(self, number: int, answer: Fields) -> None:
        line = memoryview(json.dumps({"id": number, **answer}).encode() + b"\n")
        while line:
            line = line[os.write(self.port, line) :]

    def handle(self, request: Fields) -> Fields | None:
        """Answer a request now, or (by None) later."""
        answer: Fields | None = getattr(self, "do_" + request["do"])(request)
        return answer

    def do_spawn(self, request: Fields) -> Fields:
        child = Child(request)
        self.last += 1
        self.children[self.last] = child
        return {"child": self.last, "pid": child.pid}

    def do_wait(self, request: Fields) -> Fields | None:
        child = self.children[request["child"]]
        if child.status is None:
            child.waiting.append(request["id"])
            return None
        del self.children[request["child"]]
        return child.result()

    def do_alive(self, request: Fields) -> Fields:
        child = self.children.get(request["child"])
        return {"alive": child is not None and child.status is None}

    def do_signal(self, request: Fields) -> Fields:
        child = self.children.get(request["child"])
        if child is not None and child.status is None:
            (os.killpg if child.session else os.kill)(child.pid, request["signal"])
        return {}

    def do_read(self, request: Fields) -> Fields:
        with open(request["path"], "rb") as file:
            return {"text": file.read().decode(errors="replace")}

    def do_write(self, request: Fields) -> Fields:
        """One system call, because to a kernel file each is a whole value."""
        file = os.open(request["path"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            data = request["text"].encode()
            return {"short": os.write(file, data) != len(data)}
        finally:
            os.close(file)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for number, child in list(self.children.items()):
                if child.pid == pid and child.status is None:
                    child.status = status
                    if child.waiting:
                        del self.children[number]
                        answer = child.result()
                        for waiter in child.waiting:
                            self.reply(waiter, answer)

    def serve(self, wakeup: int) -> None:
        poll = select.poll()
        poll.register(self.port, select.POLLIN)
        poll.register(wakeup, select.POLLIN)
        pending = b""
        while True:
            for ready, _ in poll.poll():
                if ready == wakeup:
                    os.read(wakeup, 512)
                    self.reap()
                    continue
                *lines, pending = (pending + os.read(self.port, 65536)).split(b"\n")
                for line in lines:
                    request = json.loads(line)
                    try:
                        answer = self.handle(request)
                    except OSError as error:
                        answer = {"errno": error.errno}
                    if answer is not None:
                        self.reply(request["id"], answer)


def find_port() -> int:
    top = "/sys/class/virtio-ports"
    for device in os.listdir(top):
        with open(f"{top}/{device}/name") as name:
            if name.read().strip() == PORT:
                return os.open(f"/dev/{device}", os.O_RDWR)
    raise SystemExit("no control port")


def main() -> None:
    os.environ.clear()
    os.environ.update(
        PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        HOME="/root",
        LANG="C.UTF-8",
    )
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    wakeup, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    agent = Agent(find_port())
    agent.reply(0, {})
    agent.serve(wakeup)


main()
