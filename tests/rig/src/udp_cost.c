// SPDX-License-Identifier: GPL-2.0-only
/*
 * udp_cost - what one datagram costs, on the clock of a machine that counts
 * instructions (one nanosecond each).
 *
 * Three ways for a datagram to arrive: "lo" sends it through the loopback device,
 * so that sending is part of the cost; "tun" writes a ready-made IP packet to a
 * tun device, which is the receive side alone: as with a driver, a buffer is
 * filled and handed to the stack, and nothing was sent. "tap" writes a frame, which
 * that driver shows to an XDP program before it has a buffer. Each datagram is read
 * at once by recv(); with -f nobody reads, the socket's buffer is full from the
 * start, and the cost is that of a packet that ends as a drop.
 *
 * With -o the same happens on a machine in trouble: another process, of the
 * given nice level, has a socket on the next port that is sent more than it
 * takes (not by lo), in bursts before each round.
 *
 * With -k so many more sockets are open all the while, bound and idle.
 *
 * With -c the receivers are in the network namespace of that name, at the given
 * address, to which this one forwards (not by lo).
 *
 * Prints one JSON object: the nanoseconds a datagram in each of ROUNDS rounds,
 * how many datagrams were sent in all, the warm-up included, and, with -k, how
 * many sockets PacketFlow tracks.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/if_ether.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC	1000000000LL
#define SIZE		256
#define ROUNDS		5
#define WARM_UP		2000	/* more than the default buffer holds */
#define BURST		64	/* to the other receiver: more than its buffer holds */
#define TROUBLE_NS	(NSEC_PER_SEC * 3 / 4)	/* so long before the first round */
#define SLOWNESS_US	20000	/* what the other receiver needs for a packet */
#define IDLE_PORT	10000	/* the first of idle sockets */
#define IDLE_PORTS	20000	/* on one address */
#define TUN		"cost0"
#define TAP_ADDRESS	{ 2, 0, 0, 0, 7, 8 }
#define TUN_LOCAL	"10.78.0.1"
#define TUN_PEER	"10.78.0.2"

struct packet {
	struct ethhdr eth;	/* of a tap's alone */
	struct iphdr ip;
	struct udphdr udp;
	char data[SIZE];
} __attribute__((packed));

_Static_assert(sizeof(struct packet) == 14 + 20 + 8 + SIZE, "headers follow without a gap");

static struct packet packet, other;
static size_t skipped;	/* of it, in front */

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static struct sockaddr_in address(const char *text, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, text, &in.sin_addr);
	return in;
}

static uint16_t ip_checksum(struct iphdr ip)
{
	const uint16_t *words = (const uint16_t *)&ip;
	uint32_t sum = 0;

	for (unsigned int i = 0; i < sizeof(ip) / 2; i++)
		sum += words[i];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* A datagram that has come from the device's other end. */
static struct packet make_packet(const char *to, uint16_t port)
{
	struct packet made = {
		.eth = { .h_dest = TAP_ADDRESS, .h_source = { 2 }, .h_proto = htons(ETH_P_IP) },
		.ip = {
			.version = 4, .ihl = sizeof(made.ip) / 4, .ttl = 64,
			.tot_len = htons(sizeof(made) - sizeof(made.eth)), .protocol = IPPROTO_UDP,
			.saddr = inet_addr(TUN_PEER), .daddr = inet_addr(to),
		},
		.udp = {
			.source = htons(port), .dest = htons(port),
			.len = htons(sizeof(made.udp) + SIZE),
		},
	};

	made.ip.check = ip_checksum(made.ip);
	return made;
}

/* Frames that may have to wait are not shown to XDP by the driver. */
static int open_tun(bool tap)
{
	struct ifreq ifr = { .ifr_name = TUN, .ifr_flags = IFF_NO_PI };
	struct sockaddr mac = { .sa_family = ARPHRD_ETHER, .sa_data = TAP_ADDRESS };
	struct sockaddr_in local = address(TUN_LOCAL, 0);
	struct sockaddr_in mask = address("255.255.255.0", 0);
	int fd = open("/dev/net/tun", O_RDWR | (tap ? O_NONBLOCK : 0));
	int sock = socket(AF_INET, SOCK_DGRAM, 0);

	ifr.ifr_flags |= tap ? IFF_TAP : IFF_TUN;
	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr))
		err(1, "/dev/net/tun");
	skipped = tap ? 0 : sizeof(packet.eth);
	if (tap) {
		ifr.ifr_hwaddr = mac;
		if (ioctl(sock, SIOCSIFHWADDR, &ifr))
			err(1, "hardware address of " TUN);
	}
	memcpy(&ifr.ifr_addr, &local, sizeof(local));
	if (ioctl(sock, SIOCSIFADDR, &ifr))
		err(1, "address of " TUN);
	memcpy(&ifr.ifr_netmask, &mask, sizeof(mask));
	if (ioctl(sock, SIOCSIFNETMASK, &ifr))
		err(1, "netmask of " TUN);
	ifr.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(sock, SIOCSIFFLAGS, &ifr))
		err(1, "setting " TUN " up");
	close(sock);
	return fd;
}

static void enter_namespace(const char *name)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		err(1, "%s", path);
	close(fd);
}

static int open_sender(uint16_t port)
{
	struct sockaddr_in to = address("127.0.0.1", port);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(1, "sending socket");
	return fd;
}

static int open_receiver(uint16_t port)
{
	struct sockaddr_in any = address("0.0.0.0", port);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any)))
		err(1, "bind to port %u", port);
	return fd;
}

static void open_idle(unsigned int count)
{
	struct rlimit limit = { .rlim_cur = count + 100, .rlim_max = count + 100 };

	if (setrlimit(RLIMIT_NOFILE, &limit))
		err(1, "limit of open files");
	for (unsigned int i = 0; i < count; i++) {
		struct sockaddr_in in = address("127.0.0.1", IDLE_PORT + i % IDLE_PORTS);
		int fd = socket(AF_INET, SOCK_DGRAM, 0);

		in.sin_addr.s_addr |= htonl(i / IDLE_PORTS << 8);
		if (fd < 0 || bind(fd, (struct sockaddr *)&in, sizeof(in)))
			err(1, "idle socket %u", i);
	}
}

/* Whoever opens the list has all open files looked at first. */
static unsigned int count_tracked(void)
{
	FILE *sockets = fopen("/proc/packetflow/sockets", "r"), *status;
	unsigned int tracked;

	if (!sockets)
		return 0;
	fclose(sockets);
	status = fopen("/proc/packetflow/status", "r");
	if (!status || fscanf(status, "sockets: %u", &tracked) != 1)
		err(1, "status");
	fclose(status);
	return tracked;
}

/* A process that receives too slowly; it ends with this one. */
static void start_other(uint16_t port, int nice)
{
	pid_t parent = getpid();
	int fd, least = 1;

	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || setpriority(PRIO_PROCESS, 0, nice))
		_exit(1);
	fd = open_receiver(port);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
	for (;;) {
		char buf[SIZE];

		recv(fd, buf, sizeof(buf), 0);
		usleep(SLOWNESS_US);
	}
}

static void trouble(int from)
{
	for (unsigned int i = 0; i < BURST; i++)
		if (write(from, (char *)&other + skipped, sizeof(other) - skipped) < 0)
			err(1, "send");
}

static void run(int from, int to, bool lo, bool flood, unsigned int count)
{
	static char buf[SIZE];

	for (unsigned int i = 0; i < count; i++) {
		if (lo ? send(from, packet.data, SIZE, 0) < 0
		       : write(from, (char *)&packet + skipped, sizeof(packet) - skipped) < 0)
			err(1, "send");
		if (!flood && recv(to, buf, sizeof(buf), 0) != SIZE)
			err(1, "recv");
	}
}

/* So many packets a round, with another receiver in trouble or not. Return: how many in all. */
static unsigned int measure(int from, int to, bool lo, bool flood, bool troubled,
			    unsigned int count)
{
	unsigned int sent = 0;
	int64_t start = now_ns();

	do {
		if (troubled)
			trouble(from);
		run(from, to, lo, flood, WARM_UP);
		sent += WARM_UP;
	} while (troubled && now_ns() - start < TROUBLE_NS);
	printf("{\"ns\": [");
	for (int round = 0; round < ROUNDS; round++) {
		if (troubled)
			trouble(from);
		start = now_ns();
		run(from, to, lo, flood, count);
		sent += count;
		printf("%s%.1f", round ? ", " : "", (double)(now_ns() - start) / count);
	}
	return sent;
}

int main(int argc, char **argv)
{
	bool flood = false, troubled = false, lo;
	unsigned int count = 5000, idle = 0, tracked = 0, sent;
	int from, to, opt, nice = 0;
	const char *inside = NULL, *at = TUN_LOCAL;
	uint16_t port;

	while ((opt = getopt(argc, argv, "a:c:fk:n:o:")) != -1) {
		if (opt == 'f')
			flood = true;
		else if (opt == 'a')
			at = optarg;
		else if (opt == 'c')
			inside = optarg;
		else if (opt == 'o')
			troubled = true, nice = atoi(optarg);
		else if (opt == 'k')
			idle = atoi(optarg);
		else if (opt == 'n')
			count = atoi(optarg);
		else
			return 2;
	}
	if (argc - optind != 2)
		errx(2, "usage: udp_cost [-f] [-k SOCKETS] [-n COUNT] [-o NICE] lo|tun|tap PORT, or\n"
			"       udp_cost -c NAMESPACE -a ADDRESS [-f] ... tun|tap PORT");
	lo = !strcmp(argv[optind], "lo");
	port = atoi(argv[optind + 1]);

	from = lo ? open_sender(port) : open_tun(!strcmp(argv[optind], "tap"));
	if (inside)
		enter_namespace(inside);
	to = open_receiver(port);
	packet = make_packet(at, port);
	other = make_packet(at, port + 1);
	if (idle) {
		open_idle(idle);
		tracked = count_tracked();
	}

	/* A receiver, even where nothing ever arrives. */
	run(from, to, lo, true, 1);
	recv(to, packet.data, SIZE, MSG_DONTWAIT);
	if (troubled)
		start_other(port + 1, nice);
	sent = 1 + measure(from, to, lo, flood, troubled, count);
	printf("], \"sent\": %u, \"tracked\": %u}\n", sent, tracked);
	return 0;
}
