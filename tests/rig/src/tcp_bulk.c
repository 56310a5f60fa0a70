// SPDX-License-Identifier: GPL-2.0-only
/*
 * tcp_bulk - receive one TCP stream in bursts.
 *
 * Takes one connection and reads all that is there, does nothing for -p
 * milliseconds, reads again, to the end of the stream. Prints one JSON object:
 * how much it had read by the end of each burst, and the largest that the
 * socket's buffer ever was (as the kernel counts, at the start of a burst).
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stream.h"

#define MAX_SAMPLES	8192

static struct {
	int64_t ns;
	uint64_t bytes;
} samples[MAX_SAMPLES];

static char buf[1 << 18];

static uint32_t buffer_size(int fd)
{
	uint32_t meminfo[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof(meminfo);

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, meminfo, &len))
		err(1, "SO_MEMINFO");
	return meminfo[SK_MEMINFO_RCVBUF];
}

/* Read what is there; returns nothing at the end of the stream, or else more. */
static ssize_t burst(int fd, uint64_t *bytes)
{
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		*bytes += n;
	if (n < 0 && errno != EAGAIN)
		err(1, "recv");
	return n;
}

int main(int argc, char **argv)
{
	struct timespec pause = { 0 };
	uint32_t rcvbuf = 0;
	uint64_t bytes = 0;
	int64_t first;
	ssize_t more;
	int fd, opt, n = 0;

	while ((opt = getopt(argc, argv, "p:")) != -1) {
		if (opt != 'p')
			return 2;
		pause.tv_sec = atoi(optarg) / 1000;
		pause.tv_nsec = atoi(optarg) % 1000 * 1000000L;
	}
	if (argc - optind != 1)
		errx(2, "usage: tcp_bulk [-p MILLISECONDS] PORT");
	fd = connection_to(atoi(argv[optind]));
	if (recv(fd, buf, 1, MSG_PEEK) != 1)
		errx(1, "the stream was empty");
	first = now_ns();
	do {
		uint32_t size = buffer_size(fd);

		if (size > rcvbuf)
			rcvbuf = size;
		more = burst(fd, &bytes);
		if (n < MAX_SAMPLES) {
			samples[n].ns = now_ns();
			samples[n++].bytes = bytes;
		}
		if (more)
			nanosleep(&pause, NULL);
	} while (more);

	printf("{\"first_ns\": %ld, \"rcvbuf\": %u, \"samples\": [", first, rcvbuf);
	for (int i = 0; i < n; i++)
		printf("%s[%ld, %lu]", i ? ", " : "", samples[i].ns, samples[i].bytes);
	puts("]}");
	return 0;
}
