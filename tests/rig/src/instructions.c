// SPDX-License-Identifier: GPL-2.0-only
/*
 * instructions - a plugin of QEMU that counts what a guest executes, by address.
 *
 * For each block of code that was translated: its address, its length, and how many
 * instructions were executed in it, in the file that counts= names, which may be read at
 * any time. Where all CPUs take turns in one thread QEMU does not tell a plugin
 * which of them is running, so the counts are of them all.
 *
 * QEMU's packages bring no header for plugins: what is used of it is declared here.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define BLOCKS (1U << 20) /* a power of two, far more than a guest executes */
#define COUNTS "counts="

struct qemu_plugin_tb;
typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info_t qemu_info_t;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
		void (*translated)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
		void (*executed)(unsigned int cpu, void *data),
		enum qemu_plugin_cb_flags flags, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);

EXPORT int qemu_plugin_version = 4;
EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
			       char **argv);

struct block {
	uint64_t address;
	uint64_t length;	/* instructions; 0: not used */
	uint64_t executed;	/* instructions */
};

static struct block *blocks;

static void executed(unsigned int cpu, void *data)
{
	struct block *block = data;

	(void)cpu;
	block->executed += block->length;
}

/* The same code is translated again and again. */
static struct block *block_of(uint64_t address, uint64_t length)
{
	uint32_t at = (address + length) * 0x9e3779b97f4a7c15ULL >> 44;
	unsigned int tried;

	for (tried = 0; tried < BLOCKS; tried++, at++) {
		struct block *block = &blocks[at % BLOCKS];

		if (!block->length) {
			block->address = address;
			block->length = length;
		}
		if (block->address == address && block->length == length)
			return block;
	}
	errx(1, "instructions: the guest has more code than there is room for");
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	struct block *block = block_of(qemu_plugin_tb_vaddr(tb), qemu_plugin_tb_n_insns(tb));

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, QEMU_PLUGIN_CB_NO_REGS, block);
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	size_t size = BLOCKS * sizeof(*blocks);
	const char *path;
	int file;

	(void)info;
	if (argc != 1 || strncmp(argv[0], COUNTS, strlen(COUNTS))) {
		warnx("instructions: wants " COUNTS "PATH");
		return -1;
	}
	path = argv[0] + strlen(COUNTS);
	file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (file < 0 || ftruncate(file, size)) {
		warn("instructions: %s", path);
		return -1;
	}
	blocks = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (blocks == MAP_FAILED) {
		warn("instructions: %s", path);
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
