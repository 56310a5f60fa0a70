// SPDX-License-Identifier: GPL-2.0-only
/*
 * rewrite - do CPUs go on executing code that another one has overwritten?
 *
 * One thread changes an instruction again and again; READERS others call it all the time.
 * Each change is made known after it was made, and whoever has heard of it serializes, so
 * from then on the new instruction must be executed. A kernel that patches its own text
 * (tracepoints, ftrace, kprobes) relies on that, and dies without it.
 *
 * Prints one JSON object: how often it was changed, and how often the old one was executed
 * although the new one was known.
 */
#include <cpuid.h>
#include <err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define READERS	3
#define CALLS	20	/* between two looks at what is new */
#define PAGE	4096

static uint32_t (*code)(void);
static volatile uint32_t *operand;
static atomic_uint told, heard[READERS], stale;
static atomic_bool over;

/* mov $operand, %eax; ret: the operand is aligned, so it changes at once. */
static void make_code(void)
{
	uint8_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		err(1, "mmap");
	page[3] = 0xb8;
	operand = (volatile uint32_t *)(page + 4);
	page[8] = 0xc3;
	code = (uint32_t (*)(void))(page + 3);
}

static void serialize(void)
{
	unsigned int a, b, c, d;

	__cpuid(0, a, b, c, d);
}

static void *reader(void *mine)
{
	uint32_t seen = 0, now;
	int i;

	while (!over) {
		for (i = 0; i < CALLS; i++)
			code();
		now = told;
		if (now == seen)
			continue;
		serialize();
		stale += code() != now;
		seen = now;
		atomic_store((atomic_uint *)mine, now);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[READERS];
	uint32_t changes = 0;
	time_t end;
	int i;

	if (argc != 2)
		errx(1, "usage: rewrite SECONDS");
	make_code();
	for (i = 0; i < READERS; i++)
		if (pthread_create(&threads[i], NULL, reader, &heard[i]))
			errx(1, "pthread_create");
	for (end = time(NULL) + atoi(argv[1]); time(NULL) < end;) {
		*operand = ++changes;
		serialize();
		told = changes;
		for (i = 0; i < READERS; i++)
			while (heard[i] != changes)
				;
	}
	over = true;
	for (i = 0; i < READERS; i++)
		pthread_join(threads[i], NULL);
	printf("{\"changes\": %u, \"stale\": %u}\n", changes, stale);
	return 0;
}
