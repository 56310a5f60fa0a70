// SPDX-License-Identifier: GPL-2.0-only
/*
 * tcp_recv - receive one TCP stream, cut into messages.
 *
 * Takes one connection and reads one message by each recv(), as a program does
 * that handles one at a time. Prints one JSON object: when the first message and
 * when the last was there. Reads on to the end of the stream, so that it is the
 * sender who keeps the closed connection, and the port is free at once.
 */
#define _GNU_SOURCE
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stream.h"

#define MAX_SIZE	65536

static const char usage[] =
	"usage: tcp_recv [-n MESSAGES] [-s SIZE] PORT\n"
	"  -n  how many to read (100000)\n"
	"  -s  bytes of each (256)\n";

int main(int argc, char **argv)
{
	unsigned long messages = 100000;
	static char buf[MAX_SIZE];
	int64_t first = 0, end;
	size_t size = 256;
	int fd, opt;

	while ((opt = getopt(argc, argv, "n:s:")) != -1) {
		switch (opt) {
		case 'n':
			messages = strtoul(optarg, NULL, 10);
			break;
		case 's':
			size = strtoul(optarg, NULL, 10);
			break;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (argc - optind != 1 || !messages || !size || size > MAX_SIZE) {
		fputs(usage, stderr);
		return 2;
	}
	fd = connection_to(atoi(argv[optind]));
	for (unsigned long i = 0; i < messages; i++) {
		if (recv(fd, buf, size, MSG_WAITALL) != (ssize_t)size)
			errx(1, "the stream ended after %lu messages", i);
		if (!i)
			first = now_ns();
	}
	end = now_ns();
	while (recv(fd, buf, sizeof(buf), 0) > 0)
		;
	printf("{\"first_ns\": %ld, \"end_ns\": %ld}\n", first, end);
	return 0;
}
