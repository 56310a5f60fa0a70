/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Frames handed to a device through a ring shared with the kernel, past sockets, routing
 * and queues: what a sender takes least time with. Small: included in the program that
 * uses it.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ether.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define FRAME_SIZE	2048
#define FRAMES		512	/* as many as may be under way */
#define FRAME_PORT	40000	/* that they come from */
#define FRAME_PAYLOAD	(FRAME_SIZE - 512)

struct frame {
	struct ether_header ethernet;
	struct iphdr ip;
	struct udphdr udp;
	char payload[];
} __attribute__((packed));

static char *frame_ring;
static unsigned int frame_next;

static struct tpacket2_hdr *frame_slot(unsigned int i)
{
	return (struct tpacket2_hdr *)(frame_ring + i * FRAME_SIZE);
}

static struct frame *frame_of(struct tpacket2_hdr *slot)
{
	return (struct frame *)((char *)slot + TPACKET2_HDRLEN - sizeof(struct sockaddr_ll));
}

static uint16_t header_checksum(struct iphdr ip)
{
	uint16_t word[sizeof(ip) / 2];
	uint32_t sum = 0;

	memcpy(word, &ip, sizeof(word));
	for (unsigned int i = 0; i < sizeof(word) / sizeof(*word); i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

/* UDP without a checksum, which IPv4 allows. */
static void frame_prepare(struct frame *frame, const struct ether_addr *from,
			  const struct ether_addr *to, in_addr_t saddr, in_addr_t daddr,
			  size_t size)
{
	memcpy(frame->ethernet.ether_shost, from, ETH_ALEN);
	memcpy(frame->ethernet.ether_dhost, to, ETH_ALEN);
	frame->ethernet.ether_type = htons(ETHERTYPE_IP);
	frame->ip = (struct iphdr){
		.version = IPVERSION,
		.ihl = sizeof(frame->ip) / 4,
		.tot_len = htons(sizeof(frame->ip) + sizeof(frame->udp) + size),
		.frag_off = htons(IP_DF),
		.ttl = IPDEFTTL,
		.protocol = IPPROTO_UDP,
		.saddr = saddr,
		.daddr = daddr,
	};
	frame->ip.check = header_checksum(frame->ip);
	frame->udp.source = htons(FRAME_PORT);
	frame->udp.len = htons(sizeof(frame->udp) + size);
}

/* A socket for frames of that payload to "DEVICE,MAC"; they are made but for port and payload. */
static int frames_open(const char *text, in_addr_t daddr, size_t size)
{
	struct tpacket_req ring = {
		.tp_block_size = FRAME_SIZE * FRAMES, .tp_block_nr = 1,
		.tp_frame_size = FRAME_SIZE, .tp_frame_nr = FRAMES,
	};
	struct sockaddr_ll at = { .sll_family = AF_PACKET };
	int fd, one = 1, version = TPACKET_V2;
	const char *mac = strchr(text, ',');
	struct ether_addr from, to;
	struct ifreq request = { 0 };
	in_addr_t saddr;

	if (!mac || mac - text >= IFNAMSIZ || !ether_aton_r(mac + 1, &to))
		errx(2, "not DEVICE,MAC: %s", text);
	if (size > FRAME_PAYLOAD)
		errx(2, "more than %d bytes in a frame", FRAME_PAYLOAD);
	memcpy(request.ifr_name, text, mac - text);
	/* Of protocol 0 it receives nothing. */
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0)
		err(1, "packet socket");
	if (ioctl(fd, SIOCGIFHWADDR, &request))
		err(1, "%s", request.ifr_name);
	memcpy(&from, request.ifr_hwaddr.sa_data, ETH_ALEN);
	if (ioctl(fd, SIOCGIFADDR, &request))
		err(1, "address of %s", request.ifr_name);
	saddr = ((struct sockaddr_in *)&request.ifr_addr)->sin_addr.s_addr;
	if (ioctl(fd, SIOCGIFINDEX, &request))
		err(1, "%s", request.ifr_name);
	at.sll_ifindex = request.ifr_ifindex;
	if (setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_TX_RING, &ring, sizeof(ring)) ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at)))
		err(1, "frames to %s", request.ifr_name);
	frame_ring = mmap(NULL, ring.tp_block_size, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, fd, 0);
	if (frame_ring == MAP_FAILED)
		err(1, "mmap");
	for (unsigned int i = 0; i < FRAMES; i++) {
		struct tpacket2_hdr *slot = frame_slot(i);

		frame_prepare(frame_of(slot), &from, &to, saddr, daddr, size);
		slot->tp_len = sizeof(struct frame) + size;
	}
	return fd;
}

/* Send what has been filled in. */
static void frames_flush(int fd)
{
	if (send(fd, NULL, 0, MSG_DONTWAIT) < 0 && errno != EAGAIN && errno != ENOBUFS)
		err(1, "send");
}

/* The next frame's payload, as soon as the kernel is done with what was in it. */
static void *frames_begin(int fd, uint16_t port)
{
	struct tpacket2_hdr *slot = frame_slot(frame_next);

	while (__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) != TP_STATUS_AVAILABLE)
		frames_flush(fd);
	frame_of(slot)->udp.dest = htons(port);
	return frame_of(slot)->payload;
}

static void frames_end(void)
{
	__atomic_store_n(&frame_slot(frame_next)->tp_status, TP_STATUS_SEND_REQUEST,
			 __ATOMIC_RELEASE);
	frame_next = (frame_next + 1) % FRAMES;
}

/* Wait until the kernel is done with all of them: what is left at the end is never sent. */
static void frames_finish(int fd)
{
	for (unsigned int i = 0; i < FRAMES; i++)
		while (__atomic_load_n(&frame_slot(i)->tp_status, __ATOMIC_ACQUIRE) !=
		       TP_STATUS_AVAILABLE)
			frames_flush(fd);
}
