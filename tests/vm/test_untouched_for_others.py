# SPDX-License-Identifier: GPL-2.0-only
"""What is for others than it seems passes untouched, while the CPU is under pressure.

Every test has a full socket of this host bound to the very port that the
passing packets carry, so that a lookup by port alone would find it and drop
them. They must arrive byte for byte, and the early drops must all be those of
the full socket itself.
"""

import socket
import struct
import subprocess
from pathlib import Path

from inside import Skip, inside, mark
from inside.net import (
    Peer,
    datagram,
    drain,
    drops,
    ip,
    nft,
    port_of,
    pressure,
    rules_see_bridges,
    udp,
    vrf,
)
from inside.passing import LARGE, PORT, N, bystander, exchange
from inside.suite import dropped, early, passed

pytestmark = mark.ends


def forward() -> None:
    for file in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        Path("/proc/sys/net", file).write_text("1")


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
    rules_see_bridges()
    # This host has their address, too: only the hardware address says that they are not for it.
    ip("address add 10.9.0.2/24 dev br0")
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
        assert passed()["not_host"] >= N


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


@mark.parametrize("whose", ["elsewhere", "own"])
@inside()
def test_a_transparent_proxy_keeps_its_packets(whose: str) -> None:
    """TPROXY gives a packet for elsewhere, or for a socket of this host, to another one."""
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
        exchange(full, sender, ("192.0.2.1" if whose == "elsewhere" else peer.ours4, PORT), proxy)


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
