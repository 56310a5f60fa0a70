// SPDX-License-Identifier: GPL-2.0-only
/*
 * udp_recv - receive UDP datagrams with as little work of its own as possible.
 *
 * A plain recv() loop; -w adds busy work to every datagram, as a program that
 * does something with its packets would. The loop takes no time stamp: a timer
 * writes down every SAMPLE_MS (or -S) how much has been received, so that the rate of
 * any period can be told afterwards without what was merely drained at the end.
 * A sample is the time, the datagrams received, the sequence number after the last
 * of them (0 where they are too short for one), and the socket's drops.
 *
 * It ends on SIGTERM, SIGINT or after -t seconds: then takes what still waits
 * in the buffer, without work, and prints one JSON object. "drops" is what
 * `ss -m` shows as d, the socket's own count of what it lost; "lost" is what the
 * sequence numbers say, if it was one flow. "rcvbuf" is the largest that the
 * socket's buffer was at any of the samples, as the kernel counts.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "mark.h"

#define NSEC_PER_SEC	1000000000LL
#define SAMPLE_MS	100
#define MAX_SAMPLES	8192

struct sample {
	int64_t ns;
	uint64_t received;
	uint32_t next_seq;
	uint32_t drops;
};

static struct sample samples[MAX_SAMPLES];
static volatile sig_atomic_t n_samples;
static volatile sig_atomic_t stop;
static volatile uint64_t received;
static volatile uint32_t next_seq;
static volatile uint32_t rcvbuf_peak;
static int64_t end_ns = INT64_MAX;
static int fd;

static const char usage[] =
	"usage: udp_recv [-6] [-b RCVBUF] [-w LOOPS] [-t SECONDS] [-S MS] PORT\n"
	"       udp_recv --calibrate\n"
	"  -6  an IPv6 socket, which takes IPv4 too\n"
	"  -b  value for SO_RCVBUF (left alone)\n"
	"  -w  busy loops per datagram (0)\n"
	"  -t  end after so many seconds (on SIGTERM only)\n"
	"  -S  milliseconds from sample to sample (100)\n"
	"  --calibrate  print the busy loops that one microsecond takes\n";

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* What the kernel has of the socket; safe in a signal handler, being one system call. */
static int read_meminfo(uint32_t *meminfo)
{
	socklen_t len = sizeof(*meminfo) * SK_MEMINFO_VARS;

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, meminfo, &len))
		return -1;
	if (meminfo[SK_MEMINFO_RCVBUF] > rcvbuf_peak)
		rcvbuf_peak = meminfo[SK_MEMINFO_RCVBUF];
	return 0;
}

static void on_timer(int sig)
{
	uint32_t meminfo[SK_MEMINFO_VARS] = { 0 };
	int64_t now = now_ns();
	int n = n_samples;
	int error = errno;

	(void)sig;
	if (now >= end_ns)
		stop = 1;
	/* That it cannot be had, main() finds out too. */
	read_meminfo(meminfo);
	errno = error;
	if (n == MAX_SAMPLES)
		return;
	samples[n].ns = now;
	samples[n].received = received;
	samples[n].next_seq = next_seq;
	samples[n].drops = meminfo[SK_MEMINFO_DROPS];
	n_samples = n + 1;
}

static void on_stop(int sig)
{
	(void)sig;
	stop = 1;
}

static void busy(uint64_t loops)
{
	for (uint64_t i = 0; i < loops; i++)
		__asm__ volatile("");
}

static int calibrate(void)
{
	const uint64_t loops = 100000000;
	int64_t start = now_ns();

	busy(loops);
	printf("%.1f\n", loops * 1e3 / (now_ns() - start));
	return 0;
}

static void handle(int sig, void (*handler)(int))
{
	/* No SA_RESTART: recv() must return. A signal that comes just before
	 * recv() is made good by the next tick of the timer.
	 */
	struct sigaction sa = { .sa_handler = handler };

	sigaction(sig, &sa, NULL);
}

static void start_sampling(int ms)
{
	struct timeval interval = { ms / 1000, ms % 1000 * 1000 };
	struct itimerval every = { interval, interval };

	handle(SIGALRM, on_timer);
	setitimer(ITIMER_REAL, &every, NULL);
}

static int listen_on(uint16_t port, bool v6, int rcvbuf)
{
	struct sockaddr_storage addr = { .ss_family = v6 ? AF_INET6 : AF_INET };
	int sock = socket(addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (sock < 0)
		err(1, "socket");
	if (rcvbuf && setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf)))
		err(1, "SO_RCVBUF");
	((struct sockaddr_in *)&addr)->sin_port = htons(port);
	if (bind(sock, (struct sockaddr *)&addr, sizeof(addr)))
		err(1, "bind to port %u", port);
	return sock;
}

struct options {
	uint16_t port;
	uint64_t loops;
	int rcvbuf;
	int seconds;
	int sample_ms;
	bool v6;
	bool calibrates;
};

static struct options parse(int argc, char **argv)
{
	static const struct option names[] = {
		{ "calibrate", no_argument, NULL, 'c' },
		{ 0 },
	};
	struct options options = { .sample_ms = SAMPLE_MS };
	int opt;

	while ((opt = getopt_long(argc, argv, "6b:w:t:S:", names, NULL)) != -1) {
		switch (opt) {
		case '6':
			options.v6 = true;
			break;
		case 'b':
			options.rcvbuf = atoi(optarg);
			break;
		case 'w':
			options.loops = strtoull(optarg, NULL, 10);
			break;
		case 't':
			options.seconds = atoi(optarg);
			break;
		case 'S':
			options.sample_ms = atoi(optarg);
			break;
		case 'c':
			options.calibrates = true;
			return options;
		default:
			fputs(usage, stderr);
			exit(2);
		}
	}
	if (argc - optind != 1 || options.sample_ms < 1) {
		fputs(usage, stderr);
		exit(2);
	}
	options.port = atoi(argv[optind]);
	return options;
}

static void report(uint16_t port, uint64_t bytes, uint64_t lost, int64_t first)
{
	uint32_t meminfo[SK_MEMINFO_VARS] = { 0 };

	if (read_meminfo(meminfo))
		err(1, "SO_MEMINFO");
	printf("{\"port\": %d, \"received\": %lu, \"bytes\": %lu, \"lost\": %lu, "
	       "\"drops\": %u, \"rcvbuf\": %u, \"first_ns\": %ld, \"end_ns\": %ld, \"samples\": [",
	       port, received, bytes, lost,
	       meminfo[SK_MEMINFO_DROPS], rcvbuf_peak, first, now_ns());
	for (int i = 0; i < n_samples; i++)
		printf("%s[%ld, %lu, %u, %u]", i ? ", " : "", samples[i].ns, samples[i].received,
		       samples[i].next_seq, samples[i].drops);
	puts("]}");
}

int main(int argc, char **argv)
{
	static char buf[65536];
	const struct mark *mark = (const struct mark *)buf;
	struct options options = parse(argc, argv);
	const uint64_t loops = options.loops;
	uint64_t bytes = 0, lost = 0;
	int64_t first = 0;

	if (options.calibrates)
		return calibrate();
	fd = listen_on(options.port, options.v6, options.rcvbuf);
	handle(SIGTERM, on_stop);
	handle(SIGINT, on_stop);
	if (options.seconds)
		end_ns = now_ns() + options.seconds * NSEC_PER_SEC;
	start_sampling(options.sample_ms);

	for (;;) {
		ssize_t n = recv(fd, buf, sizeof(buf), stop ? MSG_DONTWAIT : 0);

		if (n < 0) {
			if (stop && (errno == EAGAIN || errno == EWOULDBLOCK))
				break;
			if (errno != EINTR)
				err(1, "recv");
			continue;
		}
		if (!first)
			first = now_ns();
		received++;
		bytes += n;
		if (n >= (ssize_t)sizeof(mark->seq)) {
			if (mark->seq > next_seq)
				lost += mark->seq - next_seq;
			next_seq = mark->seq + 1;
		}
		if (!stop)
			busy(loops);
	}
	report(options.port, bytes, lost, first);
	return 0;
}
