// SPDX-License-Identifier: GPL-2.0-only
/*
 * dev_samples - what devices receive and send, at known times.
 *
 * After -b milliseconds it takes -n samples and one before them, -S milliseconds apart, and prints
 * one JSON array: of each sample the time (CLOCK_MONOTONIC, ns), and of each device what it has
 * received and sent: packets and bytes, packets and bytes, by /proc/net/dev. A device may be in
 * a network namespace of a name.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <getopt.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC	1000000000LL
#define NSEC_PER_MSEC	1000000LL
#define MAX_DEVICES	8
#define MAX_SAMPLES	4096

struct traffic {
	uint64_t received, received_bytes, sent, sent_bytes;
};

static struct device {
	char name[IFNAMSIZ];
	int file;		/* its namespace's list of devices */
} devices[MAX_DEVICES];

static struct sample {
	int64_t ns;
	struct traffic of[MAX_DEVICES];
} samples[MAX_SAMPLES];

static int n_devices;

static const char usage[] =
	"usage: dev_samples [-b MS] [-S MS] [-n SAMPLES] [NAMESPACE:]DEVICE...\n"
	"  -b  milliseconds before the first sample (0)\n"
	"  -S  milliseconds from sample to sample (1000)\n"
	"  -n  samples after the first (1)\n";

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void sleep_until(int64_t when)
{
	struct timespec ts = { when / NSEC_PER_SEC, when % NSEC_PER_SEC };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL))
		;
}

static void enter(int namespace)
{
	if (namespace < 0 || setns(namespace, CLONE_NEWNET))
		err(1, "network namespace");
}

/* "/proc/self/net" is of the namespace in which it is looked up, and an open file stays there. */
static void add(const char *text)
{
	struct device *device = &devices[n_devices++];
	const char *colon = strchr(text, ':');
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	char path[64];

	if (colon) {
		snprintf(path, sizeof(path), "/run/netns/%.*s", (int)(colon - text), text);
		enter(open(path, O_RDONLY | O_CLOEXEC));
	}
	snprintf(device->name, sizeof(device->name), "%s", colon ? colon + 1 : text);
	device->file = open("/proc/self/net/dev", O_RDONLY | O_CLOEXEC);
	if (device->file < 0)
		err(1, "/proc/self/net/dev");
	enter(home);
	close(home);
}

static void read_traffic(const struct device *device, struct traffic *traffic)
{
	static char text[1 << 16];
	ssize_t length = pread(device->file, text, sizeof(text) - 1, 0);
	size_t name = strlen(device->name);
	char *line, *rest = text;

	if (length < 0)
		err(1, "/proc/net/dev");
	text[length] = '\0';
	while ((line = strsep(&rest, "\n"))) {
		line += strspn(line, " ");
		if (!strncmp(line, device->name, name) && line[name] == ':' &&
		    sscanf(line + name + 1, "%lu %lu %*u %*u %*u %*u %*u %*u %lu %lu",
			   &traffic->received_bytes, &traffic->received,
			   &traffic->sent_bytes, &traffic->sent) == 4)
			return;
	}
	errx(1, "no device %s", device->name);
}

int main(int argc, char **argv)
{
	int opt, before_ms = 0, sample_ms = 1000, n = 1;
	int64_t begin;

	while ((opt = getopt(argc, argv, "b:S:n:")) != -1) {
		switch (opt) {
		case 'b':
			before_ms = atoi(optarg);
			break;
		case 'S':
			sample_ms = atoi(optarg);
			break;
		case 'n':
			n = atoi(optarg);
			break;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (argc == optind || argc - optind > MAX_DEVICES || sample_ms < 1 || n < 1 ||
	    n >= MAX_SAMPLES) {
		fputs(usage, stderr);
		return 2;
	}
	for (int i = optind; i < argc; i++)
		add(argv[i]);

	begin = now_ns() + before_ms * NSEC_PER_MSEC;
	for (int i = 0; i <= n; i++) {
		sleep_until(begin + i * sample_ms * NSEC_PER_MSEC);
		samples[i].ns = now_ns();
		for (int k = 0; k < n_devices; k++)
			read_traffic(&devices[k], &samples[i].of[k]);
	}

	putchar('[');
	for (int i = 0; i <= n; i++) {
		printf("%s[%ld", i ? ", " : "", samples[i].ns);
		for (int k = 0; k < n_devices; k++)
			printf(", [%lu, %lu, %lu, %lu]", samples[i].of[k].received,
			       samples[i].of[k].received_bytes, samples[i].of[k].sent,
			       samples[i].of[k].sent_bytes);
		putchar(']');
	}
	puts("]");
	return 0;
}
