// SPDX-License-Identifier: GPL-2.0-only
/*
 * tcp_send - send several TCP streams at once, as fast as they are taken.
 *
 * Connects to every port first, so that all streams start together; then gives
 * each in turn as much as its socket takes. Ends when every receiver has closed
 * its end, thus has read everything. Prints one JSON object: how many segments
 * were lost, or taken for lost, and sent again.
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
#include <unistd.h>

#define MAX_STREAMS	64
#define CHUNK		65536

static const char usage[] =
	"usage: tcp_send [-n MESSAGES] [-s SIZE] ADDRESS PORT...\n"
	"  -n  how many messages to each port (100000)\n"
	"  -s  bytes of each (256)\n";

static struct pollfd streams[MAX_STREAMS];
static uint64_t left[MAX_STREAMS];	/* bytes */

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
	ssize_t n = send(stream->fd, chunk, *rest < CHUNK ? *rest : CHUNK, MSG_NOSIGNAL);

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
	int opt;

	while ((opt = getopt(argc, argv, "n:s:")) != -1) {
		switch (opt) {
		case 'n':
			messages = strtoull(optarg, NULL, 10);
			break;
		case 's':
			size = strtoull(optarg, NULL, 10);
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
		left[n_streams] = messages * size;
	}
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
