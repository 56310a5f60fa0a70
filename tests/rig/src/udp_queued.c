// SPDX-License-Identifier: GPL-2.0-only
/*
 * udp_queued - how much waits in the receive buffers of some UDP ports, at most and on average.
 *
 * Looks at /proc/net/udp every SAMPLE_MS, ahead of every program that could keep
 * it from that. On SIGTERM it prints one JSON object: the largest sum over all
 * ports seen at one time and the mean of these sums, in bytes as the kernel counts
 * them, and how often it looked.
 */
#include <err.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SAMPLE_MS	20
#define TABLE		"/proc/net/udp"
#define PRIORITY	50	/* real-time */

static volatile sig_atomic_t stop;

static void on_stop(int sig)
{
	(void)sig;
	stop = 1;
}

static bool wanted(char **ports, unsigned int port)
{
	for (; *ports; ports++)
		if ((unsigned int)atoi(*ports) == port)
			return true;
	return false;
}

static uint64_t queued(FILE *table, char **ports)
{
	unsigned int port, waiting;
	char line[256];
	uint64_t sum = 0;

	rewind(table);
	while (fgets(line, sizeof(line), table))
		if (sscanf(line, " %*u: %*8x:%x %*8x:%*x %*x %*x:%x", &port, &waiting) == 2 &&
		    wanted(ports, port))
			sum += waiting;
	if (ferror(table))
		err(1, TABLE);
	return sum;
}

int main(int argc, char **argv)
{
	const struct sched_param first = { .sched_priority = PRIORITY };
	struct timespec next;
	uint64_t peak = 0, sum = 0, looked = 0;
	FILE *table = fopen(TABLE, "r");

	if (argc < 2)
		errx(2, "usage: udp_queued PORT...");
	if (!table)
		err(1, TABLE);
	if (sched_setscheduler(0, SCHED_FIFO, &first))
		err(1, "real-time priority");
	sigaction(SIGTERM, &(struct sigaction){ .sa_handler = on_stop }, NULL);
	clock_gettime(CLOCK_MONOTONIC, &next);
	while (!stop) {
		uint64_t now = queued(table, argv + 1);

		if (now > peak)
			peak = now;
		sum += now;
		looked++;
		next.tv_nsec += SAMPLE_MS * 1000000L;
		if (next.tv_nsec >= 1000000000L) {
			next.tv_nsec -= 1000000000L;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	printf("{\"peak\": %lu, \"mean\": %lu, \"looked\": %lu}\n", peak,
	       looked ? sum / looked : 0, looked);
	return 0;
}
