// SPDX-License-Identifier: GPL-2.0-only
/*
 * frame_fuzz - frames of all kinds, sound and unsound, into a tap device.
 *
 * Usage: frame_fuzz DEVICE SEED COUNT [wild]
 *
 * The device has a header of virtio before each frame, by which super-packets come and sums
 * are left to be made. Its host is to have the addresses below. What arrives at SERVED
 * is received at once, so that it never fills; it prints one JSON object: how many frames
 * there were, how many the device refused, and what SERVED received, as a number of
 * datagrams and a digest of all of them in their order. The same seed gives the same frames.
 * Super-packets are unsound only if wild: the kernel drops some of these without counting.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "octets.h"

#define FULL		4000
#define SERVED		4001
#define FULL4		4002
#define CLOSED		4005
#define MOST_SEGMENTS	40
#define DRAIN_EVERY	16

static const uint16_t ports[] = { FULL, FULL, FULL, FULL4, FULL4, SERVED, SERVED, CLOSED, 0 };
static const uint16_t sources[] = { 0, 53, 123, 40000, 40001 };

/* The host's own first, then those of others, and groups. */
static const char * const addresses4[] = {
	"10.1.0.1", "10.1.0.1", "10.1.0.1", "10.1.0.1", "10.1.0.1", "10.9.0.2", "239.1.2.3",
	"10.1.0.255", "255.255.255.255", "127.0.0.1", "0.0.0.0",
};

static const char * const addresses6[] = {
	"fd01::1", "fd01::1", "fd01::1", "fd01::1", "fd01::1", "fd09::2", "ff15::1:2:3",
	"ff02::1", "::1", "::", "::ffff:10.1.0.1",
};

#define ONE_OF(array)	((array)[below(sizeof(array) / sizeof(*(array)))])

static size_t l3, l4;		/* where its headers begin */
static bool v6;
static uint8_t protocol;
static struct virtio_net_hdr header;
static uint64_t refused, received, digest = 0xcbf29ce484222325;
static int tap, served;

static uint16_t pseudo_header(size_t size)
{
	uint32_t sum = protocol + size;

	return fold(v6 ? add(sum, frame + l3 + 8, 32) : add(sum, frame + l3 + 12, 8));
}

/* Where the sum of the transport is, or 0. */
static size_t sum_at(void)
{
	return protocol == IPPROTO_UDP ? 6 : protocol == IPPROTO_TCP ? 16 : 0;
}

static void sum_transport(void)
{
	uint16_t sum;

	set16(l4 + sum_at(), 0);
	sum = fold(add(pseudo_header(length - l4), frame + l4, length - l4));
	set16(l4 + sum_at(), sum == 0xffff ? sum : ~sum);
}

/* The header's own sum, for however many words it says that it has. */
static void sum_ip4(void)
{
	size_t size = (frame[l3] & 15) * 4;

	if (v6 || l3 + size > length || size < 12)
		return;
	set16(l3 + 10, 0);
	set16(l3 + 10, ~fold(add(0, frame + l3, size)));
}

static void begin(uint16_t type)
{
	static const uint8_t own[] = { 2, 0, 0, 0, 1, 1 }, other[] = { 2, 0, 0, 0, 1, 2 };

	length = 0;
	header = (struct virtio_net_hdr){ 0 };
	put(own, sizeof(own));
	put(other, sizeof(other));
	if (percent(5)) {
		put16(percent(80) ? 0x8100 : 0x88a8);
		put16(percent(80) ? 7 : below(4096));
	}
	put16(type);
	l3 = length;
}

static void put_ip4(const char *from, const char *to, bool options, uint16_t fragment)
{
	unsigned int words = options ? 1 + below(10) : 0;
	struct in_addr address;

	v6 = false;
	begin(0x0800);
	put8(0x45 + words);
	put8(below(256));
	put16(0);
	put16(below(65536));
	put16(fragment);
	put8(percent(95) ? 64 : below(3));
	put8(protocol);
	put16(0);
	inet_pton(AF_INET, from, &address);
	put(&address, sizeof(address));
	inet_pton(AF_INET, to, &address);
	put(&address, sizeof(address));
	/* No operation, or anything. */
	for (unsigned int i = 0; i < words * 4; i++)
		put8(percent(80) ? 1 : below(256));
	l4 = length;
}

static void put_ip6(const char *from, const char *to, bool extended)
{
	static const uint8_t kinds[] = { 0, 43, 60, 60, 135, 51 };
	struct in6_addr address;
	size_t next;

	v6 = true;
	begin(0x86dd);
	put32(6u << 28 | below(1 << 20));
	put16(0);
	next = length;
	put8(protocol);
	put8(percent(95) ? 64 : below(3));
	inet_pton(AF_INET6, from, &address);
	put(&address, sizeof(address));
	inet_pton(AF_INET6, to, &address);
	put(&address, sizeof(address));
	for (unsigned int i = extended ? 1 + below(3) : 0; i; i--) {
		frame[next] = ONE_OF(kinds);
		next = length;
		put8(protocol);
		put8(0);
		/* Padding of six bytes, or anything. */
		if (percent(80))
			put("\1\4\0\0\0\0", 6);
		else
			put_noise(6);
	}
	l4 = length;
}

static void put_ip(bool more)
{
	if (percent(60))
		put_ip4("10.1.0.2", ONE_OF(addresses4), more, percent(50) ? 0x4000 : 0);
	else
		put_ip6("fd01::2", ONE_OF(addresses6), more);
}

static void put_transport(size_t payload)
{
	if (protocol == IPPROTO_UDP) {
		put16(percent(90) ? ONE_OF(sources) : below(65536));
		put16(percent(95) ? ONE_OF(ports) : below(65536));
		put16(8 + payload);
		put16(0);
	} else if (protocol == IPPROTO_TCP) {
		put16(ONE_OF(sources));
		put16(percent(50) ? CLOSED : ONE_OF(ports));
		put32(chance64());
		put32(chance64());
		put8(0x50);
		put8(percent(50) ? 2 : below(64));
		put16(below(65536));
		put32(0);
	}
	put_noise(payload);
}

/* Lengths and sums as they should be. */
static void finish(void)
{
	if (v6)
		set16(l3 + 4, length - l3 - 40);
	else
		set16(l3 + 2, length - l3);
	if (sum_at())
		sum_transport();
	sum_ip4();
}

/* The sum is left to be made, as by a driver that trusts its peer. */
static void leave_sum(void)
{
	if (!sum_at() || length < l4 + 8)
		return;
	header.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	header.csum_start = l4;
	header.csum_offset = sum_at();
	set16(l4 + sum_at(), pseudo_header(length - l4));
}

static void make_super(void)
{
	static const uint16_t sizes[] = { 1, 8, 100, 500, 1400 };
	size_t size = ONE_OF(sizes), payload = size * (2 + below(MOST_SEGMENTS)) + below(size);

	if (payload > LARGEST)
		payload = LARGEST;
	protocol = percent(80) ? IPPROTO_UDP : IPPROTO_TCP;
	put_ip(false);
	put_transport(payload);
	finish();
	leave_sum();
	header.hdr_len = l4 + (protocol == IPPROTO_UDP ? 8 : 20);
	header.gso_size = size;
	if (protocol == IPPROTO_TCP)
		header.gso_type = v6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4;
	else
		header.gso_type = percent(80) ? 5 : VIRTIO_NET_HDR_GSO_UDP;
	if (percent(5))
		header.gso_type = below(256);
}

static void make_plain(bool more)
{
	static const uint8_t others[] = { 1, 2, 4, 6, 41, 47, 50, 58, 132, 136 };

	protocol = percent(75) ? IPPROTO_UDP : percent(60) ? IPPROTO_TCP : ONE_OF(others);
	put_ip(more);
	put_transport(percent(70) ? below(300) : below(1400));
	finish();
	if (sum_at() && percent(10))
		leave_sum();
	else if (protocol == IPPROTO_UDP && percent(10))
		set16(l4 + 6, percent(50) ? 0 : below(65536));
}

/* A packet for the full socket, or for the tunnel's port, inside another packet. */
static void make_wrapped(void)
{
	static const uint8_t tunnels[] = { 4, 41, 47, IPPROTO_UDP };
	uint8_t inner[600];
	size_t size;

	protocol = IPPROTO_UDP;
	put_ip(false);
	put_transport(below(300));
	finish();
	size = length - l3;
	memcpy(inner, frame + l3, size);
	protocol = ONE_OF(tunnels);
	put_ip(false);
	if (protocol == 47)
		put32(v6 ? 0x86dd : 0x0800);
	if (protocol == IPPROTO_UDP) {
		put32(40000u << 16 | 4789);
		put32((8 + 8 + 14 + size) << 16);
		put32(0x08000000);
		put32(7 << 8);
		put(frame, 14);
	}
	put(inner, size);
	finish();
}

static void send_frame(void)
{
	struct iovec parts[] = {
		{ .iov_base = &header, .iov_len = sizeof(header) },
		{ .iov_base = frame, .iov_len = length },
	};

	if (writev(tap, parts, 2) >= 0)
		return;
	/* Of an unsound header of virtio, or too short; ENOMEM would spoil the comparison. */
	if (errno != EINVAL && errno != EIO && errno != EFAULT)
		err(1, "tap");
	refused++;
}

/* All parts of a datagram, one after another, or all but the last. */
static void send_fragments(bool whole)
{
	static uint8_t datagram[4000];
	static uint16_t number;
	size_t size, at, part;
	uint16_t id = ++number;

	protocol = IPPROTO_UDP;
	put_ip4(whole ? "10.1.0.3" : "10.1.0.4", "10.1.0.1", false, 0);
	put_transport(100 + below(3000));
	finish();
	size = length - l4;
	memcpy(datagram, frame + l4, size);
	for (at = 0; at < size; at += part) {
		part = 8 * (1 + below(60));
		if (at + part >= size)
			part = size - at;
		if (at + part == size && !whole)
			return;
		put_ip4(whole ? "10.1.0.3" : "10.1.0.4", "10.1.0.1", false,
			at / 8 | (at + part < size) << 13);
		put(datagram + at, part);
		set16(l3 + 4, id);
		set16(l3 + 2, length - l3);
		sum_ip4();
		send_frame();
	}
}

static void mutate(void)
{
	for (unsigned int i = 1 + below(4); i; i--) {
		/* Mostly what follows the addresses of Ethernet. */
		size_t at = percent(90) ? 12 + below(80) : below(length);

		if (at < length)
			frame[at] ^= percent(50) ? 1u << below(8) : below(256);
	}
	if (percent(20))
		length = below(length);
	else if (percent(20) && length < LARGEST)
		put_noise(1 + below(60));
	if (percent(10))
		header.hdr_len = below(200);
	if (percent(10))
		header.gso_size = below(2000);
	if (percent(5))
		header.csum_start = below(200);
	if (length >= 34 && percent(70))
		sum_ip4();
}

static void make_frame(bool wild)
{
	unsigned int kind = below(100);

	if (kind < 3) {
		send_fragments(true);
		return;
	}
	if (kind < 5) {
		send_fragments(false);
		return;
	}
	if (kind < 15)
		make_super();
	else if (kind < 20)
		make_wrapped();
	else
		make_plain(kind < 32);
	if ((wild || !header.gso_type) && percent(25))
		mutate();
	send_frame();
}

static void take_in(const void *data, size_t size)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++)
		digest = (digest ^ bytes[i]) * 0x100000001b3;
}

static void drain(void)
{
	static uint8_t data[1 << 16];
	struct sockaddr_in6 from;
	socklen_t size = sizeof(from);
	ssize_t got;

	while ((got = recvfrom(served, data, sizeof(data), MSG_DONTWAIT,
			       (struct sockaddr *)&from, &size)) >= 0) {
		take_in(&from.sin6_addr, sizeof(from.sin6_addr));
		take_in(&from.sin6_port, sizeof(from.sin6_port));
		take_in(&got, sizeof(got));
		take_in(data, got);
		received++;
	}
	if (errno != EAGAIN)
		err(1, "recvfrom");
}

/* The driver shows no frame that may have to wait to a program before it has a buffer. */
static void open_tap(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };

	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (tap < 0 || ioctl(tap, TUNSETIFF, &request))
		err(1, "%s", name);
}

static void open_served(const char *device)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons(SERVED) };
	struct ipv6_mreq join6 = { .ipv6mr_interface = if_nametoindex(device) };
	struct ip_mreqn join4 = { .imr_ifindex = if_nametoindex(device) };
	int size = 8 << 20;

	inet_pton(AF_INET, "239.1.2.3", &join4.imr_multiaddr);
	inet_pton(AF_INET6, "ff15::1:2:3", &join6.ipv6mr_multiaddr);
	served = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (served < 0 ||
	    setsockopt(served, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) ||
	    setsockopt(served, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join4, sizeof(join4)) ||
	    setsockopt(served, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join6, sizeof(join6)) ||
	    bind(served, (struct sockaddr *)&at, sizeof(at)))
		err(1, "socket");
}

int main(int argc, char **argv)
{
	uint64_t count;

	if (argc != 4 && argc != 5)
		errx(2, "usage: frame_fuzz DEVICE SEED COUNT [wild]");
	open_tap(argv[1]);
	open_served(argv[1]);
	random_state = strtoull(argv[2], NULL, 10);
	count = strtoull(argv[3], NULL, 10);
	for (uint64_t i = 0; i < count; i++) {
		make_frame(argc == 5);
		if (i % DRAIN_EVERY == 0)
			drain();
	}
	drain();
	printf("{\"frames\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"received\": %" PRIu64
	       ", \"digest\": %" PRIu64 "}\n", count, refused, received, digest);
	return 0;
}
