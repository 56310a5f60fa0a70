/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Octets: a frame that is written from front to back, and the chance that decides what is
 * written. The same seed in random_state gives the same chance. Small: included in the program
 * that uses it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LARGEST		65000

static uint64_t random_state;
static uint8_t frame[LARGEST + 1000];
static size_t length;		/* of the frame so far */

/* splitmix64 */
static uint64_t chance64(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static unsigned int below(unsigned int end)
{
	return chance64() % end;
}

static bool percent(unsigned int share)
{
	return below(100) < share;
}

static void put(const void *data, size_t size)
{
	memcpy(frame + length, data, size);
	length += size;
}

static void put8(uint8_t value)
{
	frame[length++] = value;
}

static void put16(uint16_t value)
{
	put8(value >> 8);
	put8(value & 0xff);
}

static void put32(uint32_t value)
{
	put16(value >> 16);
	put16(value & 0xffff);
}

static void set16(size_t at, uint16_t value)
{
	frame[at] = value >> 8;
	frame[at + 1] = value & 0xff;
}

static void put_noise(size_t size)
{
	for (uint64_t bits = chance64(); size; size--, bits = bits >> 8 | bits << 56)
		put8(bits & 0xff);
}

static uint32_t add(uint32_t sum, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		sum += i & 1 ? data[i] : data[i] << 8;
	return sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}
