# SPDX-License-Identifier: GPL-2.0-only
"""What is not ours passes untouched, while the CPU is under pressure.

Every test has a full socket of this host bound to the very port that the
passing packets carry, so that a lookup by port alone would find it and drop
them. They must arrive byte for byte, and the early drops must all be those of
the full socket itself.
"""

import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inside import Skip, inside, mark
from inside.net import (
    Peer,
    Pressure,
    datagram,
    drain,
    drops,
    ip,
    port_of,
    pressure,
    udp,
    vrf,
)
from inside.suite import dropped, early, passed, wait_for

PORT = 4000
N = 200
LARGE = 4 << 20
SOL_PACKET, PACKET_VNET_HDR = 263, 15
ETH_P_IP, ETH_P_IPV6 = 0x0800, 0x86DD
UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX = 101, 102


@contextmanager
def bystander(port: int = PORT, address: str = "0.0.0.0") -> Iterator[Pressure]:
    """A full socket of this host on the port; checks that it alone lost packets."""
    with pressure(address, port) as made:
        yield made
        told = dropped()
        assert told["socket_full"] == made.early() > 0
        assert told["overload"] == told["harm"] == 0


def exchange(
    full: Pressure,
    sender: socket.socket,
    to: tuple[str, int],
    receiver: socket.socket,
    size: int = 100,
) -> None:
    """N datagrams, all of which arrive as they were sent."""
    got: list[bytes] = []
    wanted = [datagram(number, size) for number in range(N)]
    for data in wanted:
        full.again()
        sender.sendto(data, to)
        got += drain(receiver)
    # Tunnels that encrypt deliver a little later.

    def all_there() -> bool:
        got.extend(drain(receiver))
        return len(got) == N

    wait_for(all_there)
    assert sorted(got) == wanted


def forward() -> None:
    for file in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        Path("/proc/sys/net", file).write_text("1")


def nft(rules: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)


@mark.cpus(1, 4)
@mark.parametrize("family", [4, 6])
@inside()
def test_forwarded_packets(family: int) -> None:
    one, two = Peer(1), Peer(2)
    forward()
    source, target = (one.theirs4, two.theirs4) if family == 4 else (one.theirs6, two.theirs6)
    receiver, sender = two.udp(target, PORT, LARGE), one.udp(source)
    with bystander(address="0.0.0.0" if family == 4 else "::") as full:
        exchange(full, sender, (target, PORT), receiver)
        told = passed()
        assert told["forwarded"] + told["traced"] + told["judged"] >= N, told


@inside()
def test_bridged_frames() -> None:
    one, two = Peer(1), Peer(2)
    ip(
        "link add br0 type bridge forward_delay 0\nlink set br0 up\n"
        "link set v1 master br0\nlink set v2 master br0"
    )
    subprocess.run(["modprobe", "br_netfilter"], check=True)
    Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1")
    for peer, own, far, mac in ((one, 1, 2, "02:00:00:00:02:02"), (two, 2, 1, "02:00:00:00:01:02")):
        with peer:
            ip(
                f"address add 10.9.0.{own}/24 dev eth0\n"
                f"neighbour replace 10.9.0.{far} lladdr {mac} dev eth0"
            )
    receiver, sender = two.udp("10.9.0.2", PORT, LARGE), one.udp("10.9.0.1")
    with bystander() as full:
        exchange(full, sender, ("10.9.0.2", PORT), receiver)
        # Their type says that they are for this host, as br_netfilter has it.
        assert passed()["not_plain"] >= N


@mark.cpus(1, 4)
@inside()
def test_a_port_published_by_destination_nat() -> None:
    outside, container = Peer(1), Peer(2)
    forward()
    nft(
        "table ip nat { chain prerouting { type nat hook prerouting priority dstnat;"
        f" iifname v1 udp dport {PORT} dnat to {container.theirs4}:{PORT + 1}; }}; }}"
    )
    receiver, sender = container.udp(port=PORT + 1, rcvbuf=LARGE), outside.udp()
    with bystander() as full:
        exchange(full, sender, (outside.ours4, PORT), receiver)


@inside()
def test_a_port_redirected_to_a_full_socket_is_judged_there() -> None:
    outside = Peer(1)
    nft(
        "table ip nat { chain prerouting { type nat hook prerouting priority dstnat;"
        f" udp dport {PORT} redirect to :{PORT + 1}; }}; }}"
    )
    innocent, sender = udp(outside.ours4, PORT, LARGE), outside.udp()
    with pressure("0.0.0.0", PORT + 1) as full:
        before = drops(full.sock)
        for number in range(N):
            sender.sendto(datagram(number, 600), (outside.ours4, PORT))
        assert drops(full.sock) - before == N
        assert full.early() == dropped()["socket_full"] >= N
        assert drops(innocent) == 0 == len(drain(innocent))


@mark.parametrize("family", [4, 6])
@inside()
def test_virtual_services(family: int) -> None:
    """IPVS is hooked behind the filter, and its services have addresses of this host."""
    if subprocess.run(["modprobe", "-a", "ip_vs", "ip_vs_rr"], check=False).returncode:
        raise Skip("this kernel has no IPVS")
    client, real = Peer(1), Peer(2)
    forward()
    if family == 4:
        ours, theirs, to = client.ours4, client.theirs4, real.theirs4
        service, server = f"{ours}:{PORT}", f"{to}:{PORT + 1}"
    else:
        ours, theirs, to = client.ours6, client.theirs6, real.theirs6
        service, server = f"[{ours}]:{PORT}", f"[{to}]:{PORT + 1}"
    receiver, sender = real.udp(to, PORT + 1, LARGE), client.udp(theirs)
    # Loaded, and without services, it changes nothing: the full socket loses packets early.
    with bystander(address="0.0.0.0" if family == 4 else "::") as full:
        subprocess.run(["ipvsadm", "-A", "-u", service, "-s", "rr"], check=True)
        subprocess.run(["ipvsadm", "-a", "-u", service, "-r", server, "-m"], check=True)
        exchange(full, sender, (ours, PORT), receiver)
        assert passed()["not_plain"] >= N


@inside()
def test_a_receiver_in_a_vrf() -> None:
    """At a packet's first pass the socket of the default VRF seems to be the receiver."""
    peer = Peer()
    red, sender = vrf(peer), peer.udp()
    with bystander() as full:
        full.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, red)
        receiver.bind(("0.0.0.0", PORT))
        exchange(full, sender, (peer.ours4, PORT), receiver)
        assert passed()["not_plain"] >= N


@inside()
def test_replies_through_source_nat() -> None:
    client, server = Peer(1), Peer(2)
    forward()
    nft(
        "table ip nat { chain postrouting { type nat hook postrouting priority srcnat;"
        " oifname v2 masquerade; }; }"
    )
    asker, answerer = client.udp(port=PORT, rcvbuf=LARGE), server.udp(rcvbuf=LARGE)
    asker.sendto(b"a question", (server.theirs4, port_of(answerer)))
    _, asked_from = answerer.recvfrom(100)
    assert asked_from == (server.ours4, PORT)
    # The answers come to this host's own address and the full socket's own port.
    with bystander() as full:
        exchange(full, answerer, asked_from, asker)


def header(source: int, target: int, size: int) -> bytes:
    return struct.pack("!HHHH", source, target, 8 + size, 0)


@mark.cpus(1, 4)
@mark.parametrize("family", [4, 6])
@inside()
def test_fragments(family: int) -> None:
    peer = Peer()
    ours, theirs = (peer.ours4, peer.theirs4) if family == 4 else (peer.ours6, peer.theirs6)
    receiver, sender = udp(ours, PORT + 1, LARGE), peer.udp(theirs)
    # Every fragment but the first begins like a datagram to the full socket.
    payload = header(port_of(sender), PORT, 64) * 1000
    with bystander(address="0.0.0.0" if family == 4 else "::") as full:
        for _ in range(N // 4):
            full.again()
            sender.sendto(payload, (ours, PORT + 1))
        assert drain(receiver) == [payload] * (N // 4)
        before = full.early(), drops(full.sock)
        for _ in range(N // 4):
            sender.sendto(payload, (ours, PORT))
        # Stock drops them, when they are whole; that is not ours to hasten.
        assert (full.early(), drops(full.sock)) == (before[0], before[1] + N // 4)


@mark.cpus(1, 4)
@mark.parametrize("to", ["239.1.2.3", "255.255.255.255", "10.1.0.255", "ff15::1:2:3"])
@inside()
def test_several_receivers(to: str) -> None:
    peer = Peer()
    family, level, option = socket.AF_INET, socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP
    join = socket.inet_aton("239.1.2.3") + socket.inet_aton(peer.ours4)
    if ":" in to:
        family, level, option = socket.AF_INET6, socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP
        join = socket.inet_pton(family, to) + struct.pack("I", socket.if_nametoindex(peer.device))
    receivers = []
    for number in range(3):
        receiver = socket.socket(family, socket.SOCK_DGRAM)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 if number == 1 else 200_000)
        receiver.bind(("", PORT))
        receiver.setsockopt(level, option, join)
        receivers.append(receiver)
    sender = peer.udp(peer.theirs6 if ":" in to else peer.theirs4)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    with bystander(PORT + 1) as full:
        for number in range(N):
            full.again()
            sender.sendto(datagram(number, 100), (to, PORT))
        got = [drain(receiver) for receiver in receivers]
        assert got[0] == got[2] == [datagram(number, 100) for number in range(N)]
        assert len(got[1]) + drops(receivers[1]) == N > len(got[1])
        assert early(receivers[0]) == 0  # of all three


@inside()
def test_vxlan() -> None:
    peer = Peer()
    own = "link add vx type vxlan id 7 dstport 4789 local {} remote {}\nlink set vx address {} up\n"
    more = "address add {}/24 dev vx\nneighbour replace {} lladdr {} dev vx\n"
    macs = "02:00:00:00:07:01", "02:00:00:00:07:02"
    ip(own.format(peer.ours4, peer.theirs4, macs[0]) + more.format("10.7.0.1", "10.7.0.2", macs[1]))
    with peer:
        ip(
            own.format(peer.theirs4, peer.ours4, macs[1])
            + more.format("10.7.0.2", "10.7.0.1", macs[0])
        )
    receiver, sender = udp("10.7.0.1", PORT, LARGE), peer.udp("10.7.0.2")
    with bystander(PORT + 1) as full:
        exchange(full, sender, ("10.7.0.1", PORT), receiver)
        assert passed()["kernel_socket"] >= N


@inside()
def test_wireguard() -> None:
    peer = Peer()
    keys = []
    for _ in range(2):
        private = subprocess.run(["wg", "genkey"], capture_output=True, check=True).stdout
        public = subprocess.run(["wg", "pubkey"], input=private, capture_output=True, check=True)
        keys.append((private, public.stdout.decode().strip()))

    def tunnel(own: int, far: int, endpoint: str) -> None:
        ip("link add wg0 type wireguard")
        command = ["wg", "set", "wg0", "listen-port", "5555", "private-key", "/dev/stdin"]
        command += ["peer", keys[far - 1][1], "endpoint", f"{endpoint}:5555"]
        command += ["allowed-ips", "10.8.0.0/24"]
        subprocess.run(command, input=keys[own - 1][0], check=True)
        ip(f"link set wg0 up\naddress add 10.8.0.{own}/24 dev wg0")

    tunnel(1, 2, peer.theirs4)
    with peer:
        tunnel(2, 1, peer.ours4)
    receiver, sender = udp("10.8.0.1", PORT, LARGE), peer.udp("10.8.0.2")
    sender.sendto(b"shake hands first", ("10.8.0.1", PORT))
    assert receiver.recv(100) == b"shake hands first"
    with bystander(PORT + 1) as full:
        exchange(full, sender, ("10.8.0.1", PORT), receiver)
        assert passed()["kernel_socket"] >= N


@inside()
def test_udp_lite() -> None:
    try:
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDPLITE)
    except OSError:
        raise Skip("this kernel has no UDP-Lite") from None
    peer = Peer()
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    receiver.bind(("0.0.0.0", PORT))
    with peer:
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDPLITE)
    with bystander() as full:
        for number in range(N):
            full.again()
            sender.sendto(datagram(number, 100), (peer.ours4, PORT))
        got = drain(receiver)
        assert got == [datagram(number, 100) for number in range(len(got))]
        assert len(got) + drops(receiver) == N
        assert passed()["other_protocol"] >= N


@inside()
def test_ip_options() -> None:
    peer = Peer()
    receiver, sender = udp("0.0.0.0", PORT + 1, LARGE), peer.udp()
    # Record route, room for two addresses; padded to words.
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([7, 11, 4, *[0] * 8, 0]))
    with bystander() as full:
        exchange(full, sender, (peer.ours4, PORT + 1), receiver)
        before = full.early()
        sender.sendto(b"x", (peer.ours4, PORT))
        assert full.early() == before
        assert passed()["not_plain"] > N


@mark.parametrize("option", [54, 59])  # IPV6_HOPOPTS, IPV6_DSTOPTS
@inside()
def test_extension_headers(option: int) -> None:
    peer = Peer()
    receiver, sender = udp("::", PORT + 1, LARGE), peer.udp(peer.theirs6)
    # One unknown option, to be skipped, of such type and length that the header looks
    # like one of UDP to the full socket; and two bytes of padding.
    options = struct.pack("!BBHH", 0, 20, PORT, 64) + bytes((PORT & 255) - 2) + bytes([1, 2, 0, 0])
    sender.setsockopt(socket.IPPROTO_IPV6, option, options)
    with bystander(address="::") as full:
        exchange(full, sender, (peer.ours6, PORT + 1), receiver)
        before = full.early()
        sender.sendto(b"x", (peer.ours6, PORT))
        assert full.early() == before
        assert passed()["not_plain"] > N


@mark.parametrize("allowed", [1, 0])
@inside()
def test_no_checksum_with_ipv6(allowed: int) -> None:
    peer = Peer()
    receiver, sender = udp("::", PORT + 1, LARGE), peer.udp(peer.theirs6)
    sender.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_TX, 1)
    receiver.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, allowed)
    to = peer.ours6, PORT + 1
    with bystander(address="::") as full:
        if allowed:
            exchange(full, sender, to, receiver)
            return
        before = counters()
        for number in range(N):
            sender.sendto(datagram(number, 100), to)
        assert drain(receiver) == []
        assert grown(before, "Udp6InErrors") == grown(before, "Udp6InCsumErrors") == N


@mark.parametrize("size", [0, 8900])
@inside()
def test_empty_and_jumbo_datagrams(size: int) -> None:
    peer = Peer(mtu=9000)
    receiver, sender = udp(peer.ours4, PORT + 1, LARGE), peer.udp()
    with bystander() as full:
        exchange(full, sender, (peer.ours4, PORT + 1), receiver, size)


def wire(peer: Peer) -> socket.socket:
    """The peer's end of the cable."""
    with peer:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        made.bind(("eth0", 0))
    return made


def frame(peer: Peer, udp_part: bytes, family: int = 4, source: str = "") -> bytes:
    """An Ethernet frame from the peer to this host; the IP header is sound."""
    ethernet = bytes.fromhex("020000000101020000000102")
    if family == 6:
        addresses = (socket.inet_pton(socket.AF_INET6, a) for a in (peer.theirs6, peer.ours6))
        head = struct.pack("!IHBB", 6 << 28, len(udp_part), 17, 64) + b"".join(addresses)
        return ethernet + struct.pack("!H", ETH_P_IPV6) + head + udp_part
    addresses4 = socket.inet_aton(source or peer.theirs4) + socket.inet_aton(peer.ours4)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp_part), 1, 0, 64, 17, 0) + addresses4
    checksum = sum(struct.unpack("!10H", head))
    checksum = ~((checksum & 0xFFFF) + (checksum >> 16)) & 0xFFFF
    head = head[:10] + struct.pack("!H", checksum) + head[12:]
    return ethernet + struct.pack("!H", ETH_P_IP) + head + udp_part


def counters() -> dict[str, int]:
    """Of IPv4 by names such as Udp:InErrors, of IPv6 as Udp6InErrors."""
    with open("/proc/thread-self/net/snmp") as file:
        lines = [line.split() for line in file if line.startswith(("Ip:", "Udp:"))]
    with open("/proc/thread-self/net/snmp6") as file:
        found = {name: int(value) for name, value in map(str.split, file)}
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        found |= {names[0] + n: int(v) for n, v in zip(names[1:], values[1:], strict=True)}
    return found


def grown(before: dict[str, int], name: str) -> int:
    return counters()[name] - before[name]


def prefix(family: int) -> str:
    return "Udp:" if family == 4 else "Udp6"


BAD = {
    "no room for a header": header(9, PORT, 0)[:5],
    "says less than a header": struct.pack("!HHHH", 9, PORT, 7, 0) + b"x" * 32,
    "says more than there is": struct.pack("!HHHH", 9, PORT, 500, 0) + b"x" * 32,
    "says zero": struct.pack("!HHHH", 9, PORT, 0, 0) + b"x" * 32,
    "wrong checksum": struct.pack("!HHHH", 9, PORT + 1, 40, 0x1234) + b"x" * 32,
}


@mark.parametrize("family", [4, 6])
@mark.parametrize("what", list(BAD))
@inside()
def test_malformed_packets_are_left_to_stock(what: str, family: int) -> None:
    """Fails if they are dropped early, or counted as other than stock counts them."""
    peer = Peer()
    wildcard = "0.0.0.0" if family == 4 else "::"
    receiver, out = udp(wildcard, PORT + 1, LARGE), wire(peer)

    def errors() -> tuple[int, int]:
        """What N of them do to (InErrors, InCsumErrors)."""
        before = counters()
        for _ in range(N):
            out.send(frame(peer, BAD[what], family))
        assert drain(receiver) == []
        name = prefix(family)
        return grown(before, name + "InErrors"), grown(before, name + "InCsumErrors")

    # Nobody is under pressure yet, so none is looked at. Not all kernels take a length of
    # zero for a jumbogram's, which lacks its checksum then.
    by_stock = errors()
    assert by_stock[0] == N
    with bystander(address=wildcard) as full:
        early_before, drops_before = full.early(), drops(full.sock)
        assert errors() == by_stock
        full_lost = full.early() - early_before, drops(full.sock) - drops_before
        assert full_lost == (0, 0)


@mark.parametrize(
    ("family", "size", "checksum"),
    [(4, 32, 0x1234), (4, 200, 0x1234), (6, 32, 0x1234), (6, 200, 0x1234), (6, 32, 0)],
)
@inside()
def test_what_is_wrong_and_finds_no_room_is_counted_once(
    family: int, size: int, checksum: int
) -> None:
    """Stock looks at the checksum first if the packet is small, at the room if it is large."""
    peer = Peer()
    out = wire(peer)
    bad = frame(peer, struct.pack("!HHHH", 9, PORT, 8 + size, checksum) + b"x" * size, family)
    with bystander(address="0.0.0.0" if family == 4 else "::") as full:
        before, name = counters(), prefix(family)
        for _ in range(N):
            out.send(bad)
        drain(full.sock)  # one that found room is seen to be wrong only when it is received
        wrong, full_up = grown(before, name + "InCsumErrors"), grown(before, name + "RcvbufErrors")
        assert wrong + full_up == grown(before, name + "InErrors") == N


@inside()
def test_padded_and_odd_packets_are_received() -> None:
    """The datagram ends before the packet does; stock trims it."""
    peer = Peer()
    receiver, out = udp("0.0.0.0", PORT + 1, LARGE), wire(peer)
    with bystander() as full:
        for _ in range(N):
            full.again()
            out.send(frame(peer, header(9, PORT + 1, 5) + b"12345" + b"beyond the datagram"))
        assert drain(receiver) == [b"12345"] * N


@inside()
def test_a_transparent_proxy_keeps_its_packets() -> None:
    """TPROXY gives a packet for elsewhere to a socket of this host."""
    peer = Peer()
    nft(
        "table ip proxy { chain prerouting { type filter hook prerouting priority mangle;"
        f" iifname v1 udp dport {PORT} tproxy to :{PORT + 2} meta mark set 1; }}; }}"
    )
    ip("rule add fwmark 1 lookup 100\nroute add local 0.0.0.0/0 dev lo table 100")
    proxy = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    proxy.setsockopt(socket.SOL_SOCKET, 33, LARGE)
    proxy.setsockopt(socket.IPPROTO_IP, 19, 1)  # IP_TRANSPARENT
    proxy.bind(("0.0.0.0", PORT + 2))
    sender = peer.udp()
    with bystander() as full:
        exchange(full, sender, ("192.0.2.1", PORT), proxy)


@inside()
def test_a_socket_with_a_tunnel_protocol_of_its_own_is_the_kernels() -> None:
    """ESP in UDP (IPsec through NAT): the daemon's socket also carries the tunnel."""
    peer = Peer()
    receiver, sender = udp("0.0.0.0", PORT + 1, 1), peer.udp()
    receiver.setsockopt(socket.IPPROTO_UDP, 100, 2)  # UDP_ENCAP, UDP_ENCAP_ESPINUDP
    with bystander() as full:
        for number in range(N):
            full.again()
            sender.sendto(b"\0\0\0\0" + datagram(number, 50), (peer.ours4, PORT + 1))
        assert drops(receiver) > 0
        assert early(receiver) == 0
        assert passed()["kernel_socket"] >= N


@mark.parametrize("source", ["239.1.2.3", "255.255.255.255", "0.0.0.0", "127.0.0.1", "own"])
@inside()
def test_martians(source: str) -> None:
    """Stock drops them before any socket, full or not."""
    peer = Peer()
    out = wire(peer)
    sent = struct.pack("!HHHH", 5000, PORT, 108, 0) + bytes(100)
    with bystander() as full:
        lost, before = (full.early(), drops(full.sock)), counters()
        for _ in range(N):
            out.send(frame(peer, sent, source=peer.ours4 if source == "own" else source))
        wait_for(lambda: grown(before, "Ip:InReceives") >= N)
        assert grown(before, "Udp:InErrors") == 0
        assert (full.early(), drops(full.sock)) == lost


@inside()
def test_what_cannot_be_trimmed() -> None:
    """Bytes follow the datagram, and where its sum is to be made is behind its end: the kernel
    drops it as too short, whatever socket it is for.
    """
    peer = Peer()
    out = wire(peer)
    out.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    needs_sum, begin = 1, 14 + 20 + 80
    virtio = struct.pack("=BBHHHH", needs_sum, 0, 0, 0, begin, 6)
    sent = virtio + frame(peer, struct.pack("!HHHH", 5000, PORT, 58, 0) + bytes(100))
    with bystander() as full:
        before = counters()
        for _ in range(N):
            full.again()
            out.send(sent)
        wait_for(lambda: grown(before, "Ip:InReceives") >= 2 * N)
        assert grown(before, "Udp:InErrors") == grown(before, "Udp:RcvbufErrors") + N
