// SPDX-License-Identifier: GPL-2.0-only
/*
 * tcp_send - send several TCP streams at once, as fast as they are taken.
 *
 * Connects to every port first, so that all streams start together; then gives
 * each in turn as much as its socket takes. Ends when every receiver has closed
 * its end, thus has read everything. Prints one JSON object: how many segments
 * were lost, or taken for lost, and sent again.
 *
 * With -t it sends for so long, and what a stream may have under way is bounded by
 * nothing but the receiver's window.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC	1000000000LL
#define MAX_STREAMS	64
#define CHUNK		65536
#define UNDER_WAY	(32 << 20)	/* bytes, sent and not confirmed */
#define UNSENT		(1 << 20)	/* no more wait to be sent, or the end would be late */

static const char usage[] =
	"usage: tcp_send [-n MESSAGES] [-s SIZE] [-t SECONDS] ADDRESS PORT...\n"
	"  -n  how many messages to each port (100000)\n"
	"  -s  bytes of each (256)\n"
	"  -t  send for so many seconds instead\n";

static int64_t end_ns = INT64_MAX;
static struct pollfd streams[MAX_STREAMS];
static uint64_t left[MAX_STREAMS];	/* bytes */

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void unbind(int fd)
{
	int under_way = UNDER_WAY, unsent = UNSENT;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &under_way, sizeof(under_way)))
		err(1, "SO_SNDBUFFORCE");
	if (setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)))
		err(1, "TCP_NOTSENT_LOWAT");
}

static int connection_to(const char *address, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
		errx(2, "not an address: %s", address);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(1, "connect to port %u", port);
	if (fcntl(fd, F_SETFL, O_NONBLOCK))
		err(1, "O_NONBLOCK");
	return fd;
}

/* Hand over what the socket takes; with the last byte begin to wait for its end. */
static void fill(struct pollfd *stream, uint64_t *rest)
{
	static char chunk[CHUNK];
	ssize_t n;

	if (now_ns() >= end_ns)
		*rest = 0;
	n = send(stream->fd, chunk, *rest < CHUNK ? *rest : CHUNK, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN)
		err(1, "send");
	if (n > 0)
		*rest -= n;
	if (!*rest) {
		shutdown(stream->fd, SHUT_WR);
		stream->events = POLLIN;
	}
}

/* The receiver has closed its end: nothing more is to be sent again. */
static unsigned int finish(struct pollfd *stream)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);
	char byte;

	if (recv(stream->fd, &byte, sizeof(byte), 0))
		err(1, "the receiver did not read everything");
	if (getsockopt(stream->fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		err(1, "TCP_INFO");
	close(stream->fd);
	stream->fd = -1;
	return info.tcpi_total_retrans;
}

int main(int argc, char **argv)
{
	unsigned int n_streams = 0, open, retransmitted = 0;
	uint64_t messages = 100000, size = 256;
	double seconds = 0;
	int opt;

	while ((opt = getopt(argc, argv, "n:s:t:")) != -1) {
		switch (opt) {
		case 'n':
			messages = strtoull(optarg, NULL, 10);
			break;
		case 's':
			size = strtoull(optarg, NULL, 10);
			break;
		case 't':
			seconds = atof(optarg);
			break;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (argc - optind < 2 || argc - optind > MAX_STREAMS + 1 || !messages || !size) {
		fputs(usage, stderr);
		return 2;
	}
	for (int i = optind + 1; i < argc; i++, n_streams++) {
		streams[n_streams].fd = connection_to(argv[optind], atoi(argv[i]));
		streams[n_streams].events = POLLOUT;
		left[n_streams] = seconds ? UINT64_MAX : messages * size;
		if (seconds)
			unbind(streams[n_streams].fd);
	}
	if (seconds)
		end_ns = now_ns() + (int64_t)(seconds * NSEC_PER_SEC);
	for (open = n_streams; open;) {
		if (poll(streams, n_streams, -1) < 0)
			err(1, "poll");
		for (unsigned int i = 0; i < n_streams; i++) {
			if (!streams[i].revents)
				continue;
			if (left[i]) {
				fill(&streams[i], &left[i]);
			} else {
				retransmitted += finish(&streams[i]);
				open--;
			}
		}
	}
	printf("{\"retransmitted\": %u}\n", retransmitted);
	return 0;
}
