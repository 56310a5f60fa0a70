// SPDX-License-Identifier: GPL-2.0-only
/*
 * recv_cost - what it takes to receive what waits already, on the clock of a machine that
 * counts instructions (one nanosecond each).
 *
 * Datagrams, or a stream, are queued first, through lo, and received then; only the latter is
 * measured. Ways to receive a datagram of each size:
 *
 *	nothing   recv() of an empty queue: the call alone
 *	take      recv() of no bytes (MSG_TRUNC): the call, and taking it from the queue
 *	copy      recv(): that, and the copy
 *	mmsg      recvmmsg(), BATCH at a time
 *	gro       recv() with UDP_GRO, of as many as one buffer held; those that a card, or here
 *	          the sender, joined
 *	memcpy    the same number of bytes in user space, to tell what a copy is worth here
 *
 * Ways to receive a part of a stream of each size:
 *
 *	take      recv() with MSG_TRUNC, which drops it
 *	copy      recv()
 *	map       TCP_ZEROCOPY_RECEIVE, and giving the pages back
 *
 * Prints one JSON object: "udp" and "tcp", nanoseconds by size and way, medians of the rounds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC	1000000000LL
#define ROUNDS		9
#define BATCH		32	/* datagrams in a round */
#define PARTS		8	/* of a stream in a round */
#define LARGEST		65536
#define JOINED_MOST	60000	/* bytes that a sender may join */
#define SOL_UDP		17
#define UDP_SEGMENT	103
#define UDP_GRO		104

static char out[LARGEST], in[BATCH][LARGEST];

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static int by_value(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), by_value);
	return values[ROUNDS / 2];
}

static int bound(int type)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	int size = 64 << 20, fd = socket(AF_INET, type, 0);

	any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any)))
		err(1, "socket");
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		err(1, "SO_RCVBUFFORCE");
	return fd;
}

static int connected(int type, int to)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	int size = 64 << 20, fd = socket(AF_INET, type, 0);

	if (getsockname(to, (struct sockaddr *)&address, &length) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) ||
	    connect(fd, (struct sockaddr *)&address, length))
		err(1, "connect");
	return fd;
}

static void received(ssize_t bytes, ssize_t expected)
{
	if (bytes != expected)
		err(1, "received %zd of %zd", bytes, expected);
}

static double udp_nothing(int fd)
{
	int64_t begin = now_ns();

	for (int i = 0; i < BATCH; i++)
		received(recv(fd, in[0], LARGEST, MSG_DONTWAIT), -1);
	return (double)(now_ns() - begin) / BATCH;
}

static double udp_each(int fd, size_t size, size_t copied)
{
	int64_t begin = now_ns();

	for (int i = 0; i < BATCH; i++)
		received(recv(fd, in[i], copied, MSG_TRUNC), size);
	return (double)(now_ns() - begin) / BATCH;
}

static double udp_mmsg(int fd)
{
	struct mmsghdr messages[BATCH] = { 0 };
	struct iovec parts[BATCH];
	int64_t begin;

	for (int i = 0; i < BATCH; i++) {
		parts[i] = (struct iovec){ in[i], LARGEST };
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	begin = now_ns();
	received(recvmmsg(fd, messages, BATCH, 0, NULL), BATCH);
	return (double)(now_ns() - begin) / BATCH;
}

/* Joined by the sender; as many as go into one. */
static double udp_gro(size_t size)
{
	int one = 1, segment = size, to = bound(SOCK_DGRAM), from = connected(SOCK_DGRAM, to);
	size_t joined = size * (JOINED_MOST / size < BATCH ? JOINED_MOST / size : BATCH);
	int64_t begin;
	double ns;

	if (setsockopt(to, SOL_UDP, UDP_GRO, &one, sizeof(one)) ||
	    setsockopt(from, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)))
		err(1, "UDP_GRO");
	received(send(from, out, joined, 0), joined);
	begin = now_ns();
	received(recv(to, in[0], LARGEST, 0), joined);
	ns = (double)(now_ns() - begin) / (joined / size);
	close(from);
	close(to);
	return ns;
}

static double copy_in_user_space(size_t size)
{
	int64_t begin = now_ns();

	for (int i = 0; i < BATCH; i++) {
		memcpy(in[i], out, size);
		__asm__ volatile("" : : "r"(in[i]) : "memory");	/* or it is left out */
	}
	return (double)(now_ns() - begin) / BATCH;
}

static void udp(size_t size, const char *before)
{
	double nothing[ROUNDS], take[ROUNDS], copy[ROUNDS], mmsg[ROUNDS], gro[ROUNDS], user[ROUNDS];
	int to = bound(SOCK_DGRAM), from = connected(SOCK_DGRAM, to);

	for (int round = 0; round < ROUNDS; round++) {
		for (int way = 0; way < 3; way++) {
			for (int i = 0; i < BATCH; i++)
				received(send(from, out, size, 0), size);
			if (way == 0)
				take[round] = udp_each(to, size, 0);
			else if (way == 1)
				copy[round] = udp_each(to, size, LARGEST);
			else
				mmsg[round] = udp_mmsg(to);
		}
		nothing[round] = udp_nothing(to);
		gro[round] = size * 2 <= JOINED_MOST / 10 ? udp_gro(size) : 0;
		user[round] = copy_in_user_space(size);
	}
	printf("%s\"%zu\": {\"nothing\": %.0f, \"take\": %.0f, \"copy\": %.0f, \"mmsg\": %.0f",
	       before, size, median(nothing), median(take), median(copy), median(mmsg));
	if (median(gro) > 0)
		printf(", \"gro\": %.0f", median(gro));
	printf(", \"memcpy\": %.0f}", median(user));
	close(from);
	close(to);
}

static double tcp_each(int fd, size_t size, int flags)
{
	int64_t begin = now_ns();

	for (int i = 0; i < PARTS; i++)
		received(recv(fd, in[i], size, flags | MSG_WAITALL), size);
	return (double)(now_ns() - begin) / PARTS;
}

static double tcp_map(int fd, size_t size)
{
	void *pages = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	int64_t begin;
	double ns;

	if (pages == MAP_FAILED)
		err(1, "mmap");
	begin = now_ns();
	for (int i = 0; i < PARTS; i++) {
		struct tcp_zerocopy_receive zc = { .address = (uintptr_t)pages, .length = size };
		socklen_t length = sizeof(zc);

		if (getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &zc, &length))
			err(1, "TCP_ZEROCOPY_RECEIVE");
		if (zc.length != size)
			errx(1, "%u of %zu bytes could be mapped", zc.length, size);
		if (madvise(pages, size, MADV_DONTNEED))
			err(1, "madvise");
	}
	ns = (double)(now_ns() - begin) / PARTS;
	munmap(pages, size);
	return ns;
}

static void tcp(size_t size, const char *before)
{
	double take[ROUNDS], copy[ROUNDS], map[ROUNDS];
	int listening = bound(SOCK_STREAM), from, to;

	if (listen(listening, 1))
		err(1, "listen");
	from = connected(SOCK_STREAM, listening);
	to = accept(listening, NULL, NULL);
	for (int round = 0; round < ROUNDS; round++) {
		for (int way = 0; way < 3; way++) {
			for (int i = 0; i < PARTS; i++)
				received(send(from, out, size, 0), size);
			usleep(10000);	/* all of it has come */
			if (way == 0)
				take[round] = tcp_each(to, size, MSG_TRUNC);
			else if (way == 1)
				copy[round] = tcp_each(to, size, 0);
			else
				map[round] = tcp_map(to, size);
		}
	}
	printf("%s\"%zu\": {\"take\": %.0f, \"copy\": %.0f, \"map\": %.0f}", before, size,
	       median(take), median(copy), median(map));
	close(from);
	close(to);
	close(listening);
}

int main(void)
{
	memset(out, 'x', sizeof(out));
	memset(in, 'x', sizeof(in));	/* no page is missing later */
	printf("{\"udp\": {");
	udp(64, "");
	udp(512, ", ");
	udp(1472, ", ");
	udp(8192, ", ");
	udp(60000, ", ");
	printf("}, \"tcp\": {");
	tcp(4096, "");
	tcp(16384, ", ");
	tcp(61440, ", ");	/* of more a buffer has no room */
	printf("}}\n");
	return 0;
}
