// SPDX-License-Identifier: GPL-2.0-only
/*
 * udp_send - send several UDP flows at exact rates.
 *
 * Every flow has its own timetable (constant gaps, or Poisson with -P), which may rest: it
 * then sends for so many seconds, and not for so many, again and again. The
 * program wakes every GRAIN_NS and sends, in the order of their due times and
 * thus interleaved between the flows, all datagrams that are due. It sleeps in
 * between, so that it can share a core with the emulator.
 *
 * When it falls behind by more than MAX_LAG_NS the timetables are moved instead
 * of caught up with: a burst would measure the sender. What was left out that
 * way is reported as "skipped", with a warning.
 *
 * With -d it hands frames to a device, and never sleeps: a sender that shares its time
 * with what it loads so takes little of it for a packet, and always the same of it in all.
 *
 * A datagram starts with struct mark (cut off where the payload is shorter), or is a text. It ends
 * in its time, or on SIGTERM. Prints one JSON object: per flow what the socket
 * accepted, when it began (CLOCK_MONOTONIC) and the time used.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "frames.h"
#include "mark.h"

#define NSEC_PER_SEC	1000000000LL
#define GRAIN_NS	200000
#define MAX_LAG_NS	5000000
#define MAX_FLOWS	256
#define BATCH		64
#define MAX_SIZE	65507

struct flow {
	struct sockaddr_storage to;
	uint16_t port;
	double gap_ns;
	double on_ns;
	double off_ns;		/* 0: it never rests */
	double spent_ns;	/* of sending, until the next is due */
	double due_ns;		/* since the start */
	uint32_t seq;		/* next to be sent */
	uint64_t skipped;
};

static struct flow flows[MAX_FLOWS];
static unsigned int n_flows;
static bool poisson;
static const char *device;	/* that frames go to, and the neighbour there */
static size_t size = 256;
static const char *text;	/* in place of the mark */
static double seconds = 4;
static uint16_t src_port;
static volatile sig_atomic_t stop;

static const char usage[] =
	"usage: udp_send [-P] [-s SIZE | -m TEXT] [-t SECONDS] [-p SRC_PORT] [-d DEVICE,MAC]\n"
	"                ADDRESS PORT:PPS[:ON:OFF]...\n"
	"  -P  Poisson arrivals instead of constant gaps\n"
	"  -s  payload bytes (256)\n"
	"  -m  the payload, in place of a mark\n"
	"  -t  seconds to send (4)\n"
	"  -p  source port (any)\n"
	"  -d  IPv4 frames to this device and neighbour, and no sleep in between\n";

static void on_stop(int sig)
{
	(void)sig;
	stop = 1;
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static double next_gap(const struct flow *flow)
{
	return poisson ? -log1p(-drand48()) * flow->gap_ns : flow->gap_ns;
}

static void advance(struct flow *flow, double ns)
{
	flow->spent_ns += ns;
	flow->due_ns = flow->spent_ns;
	if (flow->off_ns > 0)
		flow->due_ns += floor(flow->spent_ns / flow->on_ns) * flow->off_ns;
}

static struct flow *earliest(void)
{
	struct flow *first = flows;

	for (unsigned int i = 1; i < n_flows; i++)
		if (flows[i].due_ns < first->due_ns)
			first = &flows[i];
	return first;
}

static void address(struct sockaddr_storage *to, const char *text, uint16_t port)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)to;
	struct sockaddr_in *in = (struct sockaddr_in *)to;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
	} else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
	} else {
		errx(2, "not an address: %s", text);
	}
}

static void parse_flow(const char *host, const char *text)
{
	struct flow *flow = &flows[n_flows];
	double pps, on = 0, off = 0;
	int found;

	if (n_flows == MAX_FLOWS)
		errx(2, "more than %d flows", MAX_FLOWS);
	found = sscanf(text, "%hu:%lf:%lf:%lf", &flow->port, &pps, &on, &off);
	if ((found != 2 && found != 4) || pps <= 0 || off < 0 || (off > 0 && on <= 0))
		errx(2, "not PORT:PPS[:ON:OFF]: %s", text);
	address(&flow->to, host, flow->port);
	flow->gap_ns = NSEC_PER_SEC / pps;
	flow->on_ns = on * NSEC_PER_SEC;
	flow->off_ns = off * NSEC_PER_SEC;
	n_flows++;
}

static void mark_next(struct flow *flow, void *payload, int64_t start)
{
	struct mark mark = {
		.seq = flow->seq++,
		.flow = flow - flows,
		.sent_ns = start + (int64_t)flow->due_ns,
	};

	if (text)
		memcpy(payload, text, size);
	else
		memcpy(payload, &mark, size < sizeof(mark) ? size : sizeof(mark));
	advance(flow, next_gap(flow));
}

static void send_frames(int fd, double until, int64_t start)
{
	struct flow *flow;

	while ((flow = earliest())->due_ns < until) {
		mark_next(flow, frames_begin(fd, flow->port), start);
		frames_end();
	}
	frames_flush(fd);
}

/* Fill up to BATCH datagrams that are due by @until; returns how many. */
static int fill(struct mmsghdr *batch, struct flow **of, double until, int64_t start)
{
	int n = 0;

	for (; n < BATCH; n++) {
		struct flow *flow = earliest();
		struct msghdr *msg = &batch[n].msg_hdr;

		if (flow->due_ns >= until)
			break;
		mark_next(flow, msg->msg_iov->iov_base, start);
		msg->msg_name = &flow->to;
		msg->msg_namelen = sizeof(flow->to);
		of[n] = flow;
	}
	return n;
}

/* The kernel takes all or refuses one: that one counts as not sent. */
static void send_all(int fd, struct mmsghdr *batch, struct flow **of, int n,
		     uint64_t *refused)
{
	for (int done = 0; done < n;) {
		int sent = sendmmsg(fd, batch + done, n - done, 0);

		if (sent > 0) {
			done += sent;
		} else if (errno == ENOBUFS || errno == ECONNREFUSED || errno == EAGAIN) {
			refused[of[done] - flows]++;
			done++;
		} else if (errno != EINTR) {
			err(1, "sendmmsg");
		}
	}
}

static void skip_to(double due_ns)
{
	for (unsigned int i = 0; i < n_flows; i++) {
		struct flow *flow = &flows[i];

		while (flow->due_ns < due_ns) {
			advance(flow, next_gap(flow));
			flow->skipped++;
		}
	}
}

static void sleep_until(int64_t when)
{
	struct timespec ts = { when / NSEC_PER_SEC, when % NSEC_PER_SEC };

	if (device) {
		while (now_ns() < when)
			;
		return;
	}
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static void parse(int argc, char **argv)
{
	int opt;

	while ((opt = getopt(argc, argv, "Ps:m:t:p:d:")) != -1) {
		switch (opt) {
		case 'P':
			poisson = true;
			break;
		case 's':
			size = strtoul(optarg, NULL, 10);
			break;
		case 'm':
			text = optarg;
			size = strlen(text);
			break;
		case 't':
			seconds = atof(optarg);
			break;
		case 'p':
			src_port = atoi(optarg);
			break;
		case 'd':
			device = optarg;
			break;
		default:
			fputs(usage, stderr);
			exit(2);
		}
	}
	if (argc - optind < 2 || size > MAX_SIZE) {
		fputs(usage, stderr);
		exit(2);
	}
	for (int i = optind + 1; i < argc; i++)
		parse_flow(argv[optind], argv[i]);
	if (device && (src_port || flows[0].to.ss_family != AF_INET))
		errx(2, "frames are IPv4, and from port %d", FRAME_PORT);
}

/* A socket, or what frames are handed to. */
static int open_way(void)
{
	struct sockaddr_storage from = { .ss_family = flows[0].to.ss_family };
	int fd;

	if (device)
		fd = frames_open(device, ((struct sockaddr_in *)&flows[0].to)->sin_addr.s_addr,
				 size);
	else
		fd = socket(flows[0].to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		err(1, "socket");
	((struct sockaddr_in *)&from)->sin_port = htons(src_port);
	if (src_port && bind(fd, (struct sockaddr *)&from, sizeof(from)))
		err(1, "bind to source port %u", src_port);
	return fd;
}

static void make_batch(struct mmsghdr *batch)
{
	static struct iovec iov[BATCH];

	for (int i = 0; i < BATCH; i++) {
		iov[i].iov_base = calloc(1, size + 1);
		iov[i].iov_len = size;
		batch[i].msg_hdr.msg_iov = &iov[i];
		batch[i].msg_hdr.msg_iovlen = 1;
	}
}

static void report(int64_t start, int64_t used, double max_lag, const uint64_t *refused)
{
	uint64_t skipped = 0;

	printf("{\"seconds\": %.6f, \"start_ns\": %ld, \"max_lag_ms\": %.3f, \"flows\": [",
	       used / 1e9, start, max_lag / 1e6);
	for (unsigned int i = 0; i < n_flows; i++) {
		struct flow *flow = &flows[i];

		skipped += flow->skipped + refused[i];
		printf("%s{\"port\": %u, \"sent\": %lu, \"skipped\": %lu, \"refused\": %lu}",
		       i ? ", " : "", flow->port, flow->seq - refused[i],
		       flow->skipped, refused[i]);
	}
	puts("]}");
	if (skipped)
		warnx("the rate was not held: %lu datagrams not sent", skipped);
}

int main(int argc, char **argv)
{
	static struct mmsghdr batch[BATCH];
	static struct flow *of[BATCH];
	static uint64_t refused[MAX_FLOWS];
	double end_ns, max_lag = 0;
	int64_t start, used;
	int fd;

	parse(argc, argv);
	fd = open_way();
	make_batch(batch);
	/* Spread the flows over one gap, so that constant rates interleave. */
	for (unsigned int i = 0; i < n_flows; i++)
		advance(&flows[i], flows[i].gap_ns * (i + 1) / (n_flows + 1));
	prctl(PR_SET_TIMERSLACK, 1);
	signal(SIGTERM, on_stop);

	end_ns = seconds * NSEC_PER_SEC;
	start = now_ns();
	for (double until = 0; until < end_ns && !stop;) {
		double lag = now_ns() - start - until;
		int n;

		if (lag > max_lag)
			max_lag = lag;
		if (lag > MAX_LAG_NS) {
			until += lag;
			skip_to(until < end_ns ? until : end_ns);
		}
		until += GRAIN_NS;
		if (until > end_ns)
			until = end_ns;
		sleep_until(start + (int64_t)until);
		if (device)
			send_frames(fd, until, start);
		while ((n = fill(batch, of, until, start)))
			send_all(fd, batch, of, n, refused);
	}
	used = now_ns() - start;
	if (device)
		frames_finish(fd);
	report(start, used, max_lag, refused);
	return 0;
}
