/* SPDX-License-Identifier: GPL-2.0-only */
/* What those that receive one TCP stream share. */
#ifndef RIG_STREAM_H
#define RIG_STREAM_H

#include <err.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

#define NSEC_PER_SEC	1000000000LL

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* The first connection that comes. */
static int connection_to(uint16_t port)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd;

	if (listener < 0)
		err(1, "socket");
	if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) || listen(listener, 1))
		err(1, "bind to port %u", port);
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		err(1, "accept");
	return fd;
}

#endif
