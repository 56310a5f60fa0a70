// SPDX-License-Identifier: GPL-2.0-only
/*
 * xdp_police - drop UDP datagrams as soon as any device's can be.
 *
 * By generic XDP, the first that looks at a packet after its driver, or with -n natively, in the
 * driver: the datagrams to each given port (IPv4, without options) pass at no more than the given
 * rate, the rest are dropped. A rate of 0 drops all. It lasts until SIGTERM or SIGINT; then prints
 * one JSON object, by port how many were dropped.
 *
 * The program is written by hand, so that no compiler for BPF is needed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_PORTS	16
#define MAX_INSNS	128
#define NSEC_PER_SEC	1000000000.0
#define BURST_NS	1000000	/* what comes at once may, up to what this time allows */

/* By port, in the map. */
struct police {
	uint64_t next_ns;	/* from then on one may pass */
	uint64_t gap_ns;	/* between two of them */
	uint64_t dropped;
};

enum { AT_TYPE = 12, AT_VERSION = 14, AT_PROTOCOL = 23, AT_PORT = 36, HEADERS = 42 };
enum { R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, STACK };

static struct bpf_insn program[MAX_INSNS];
static unsigned int length;

/* Appends; gives its place, so that a jump can be told later where to. */
static unsigned int emit(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm)
{
	if (length == MAX_INSNS)
		errx(2, "too many ports");
	program[length] = (struct bpf_insn){ code, dst, src, off, imm };
	return length++;
}

static void land(unsigned int jump)
{
	program[jump].off = length - jump - 1;
}

static void end_with(int action)
{
	emit(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, action);
	emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

/* Pass what is no such datagram; leaves its destination port in R5. */
static void parse(void)
{
	const struct {
		uint8_t size;
		int16_t at;
		int32_t is;
	} fields[] = {
		{ BPF_H, AT_TYPE, htons(ETH_P_IP) },
		{ BPF_B, AT_VERSION, 0x45 },
		{ BPF_B, AT_PROTOCOL, IPPROTO_UDP },
	};
	unsigned int jump;

	emit(BPF_LDX | BPF_MEM | BPF_W, R2, R1, offsetof(struct xdp_md, data), 0);
	emit(BPF_LDX | BPF_MEM | BPF_W, R3, R1, offsetof(struct xdp_md, data_end), 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, R4, R2, 0, 0);
	emit(BPF_ALU64 | BPF_ADD | BPF_K, R4, 0, 0, HEADERS);
	jump = emit(BPF_JMP | BPF_JLE | BPF_X, R4, R3, 0, 0);
	end_with(XDP_PASS);
	land(jump);
	for (unsigned int i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		emit(BPF_LDX | BPF_MEM | fields[i].size, R5, R2, fields[i].at, 0);
		jump = emit(BPF_JMP | BPF_JEQ | BPF_K, R5, 0, 0, fields[i].is);
		end_with(XDP_PASS);
		land(jump);
	}
	emit(BPF_LDX | BPF_MEM | BPF_H, R5, R2, AT_PORT, 0);
}

/* The index of the port in R5 goes to the stack, or the packet passes. */
static void find(const uint16_t *ports, unsigned int n)
{
	unsigned int found[MAX_PORTS];

	for (unsigned int i = 0; i < n; i++) {
		unsigned int other = emit(BPF_JMP | BPF_JNE | BPF_K, R5, 0, 0, htons(ports[i]));

		emit(BPF_ST | BPF_MEM | BPF_W, STACK, 0, -4, i);
		found[i] = emit(BPF_JMP | BPF_JA, 0, 0, 0, 0);
		land(other);
	}
	end_with(XDP_PASS);
	for (unsigned int i = 0; i < n; i++)
		land(found[i]);
}

static void police(int map)
{
	unsigned int there, late, recent;

	emit(BPF_LD | BPF_IMM | BPF_DW, R1, BPF_PSEUDO_MAP_FD, 0, map);
	emit(0, 0, 0, 0, 0);	/* its upper half */
	emit(BPF_ALU64 | BPF_MOV | BPF_X, R2, STACK, 0, 0);
	emit(BPF_ALU64 | BPF_ADD | BPF_K, R2, 0, 0, -4);
	emit(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem);
	there = emit(BPF_JMP | BPF_JNE | BPF_K, R0, 0, 0, 0);
	end_with(XDP_PASS);
	land(there);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, R7, R0, 0, 0);
	emit(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_ktime_get_ns);
	emit(BPF_LDX | BPF_MEM | BPF_DW, R1, R7, offsetof(struct police, next_ns), 0);
	late = emit(BPF_JMP | BPF_JGE | BPF_X, R0, R1, 0, 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_K, R1, 0, 0, 1);
	emit(BPF_STX | BPF_ATOMIC | BPF_DW, R7, R1, offsetof(struct police, dropped), BPF_ADD);
	end_with(XDP_DROP);
	land(late);
	emit(BPF_ALU64 | BPF_SUB | BPF_K, R0, 0, 0, BURST_NS);
	recent = emit(BPF_JMP | BPF_JGE | BPF_X, R1, R0, 0, 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, R1, R0, 0, 0);
	land(recent);
	emit(BPF_LDX | BPF_MEM | BPF_DW, R2, R7, offsetof(struct police, gap_ns), 0);
	emit(BPF_ALU64 | BPF_ADD | BPF_X, R1, R2, 0, 0);
	emit(BPF_STX | BPF_MEM | BPF_DW, R7, R1, offsetof(struct police, next_ns), 0);
	end_with(XDP_PASS);
}

static int bpf(int command, union bpf_attr *attr, const char *what)
{
	int fd = syscall(SYS_bpf, command, attr, sizeof(*attr));

	if (fd < 0)
		err(1, "%s", what);
	return fd;
}

static int load(int map, const uint16_t *ports, unsigned int n)
{
	static char log[1 << 16];
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_XDP,
		.insns = (uintptr_t)program,
		.license = (uintptr_t)"GPL",
		.log_buf = (uintptr_t)log,
		.log_size = sizeof(log),
		.log_level = 1,
	};
	int fd;

	parse();
	find(ports, n);
	police(map);
	attr.insn_cnt = length;
	fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
	if (fd < 0)
		err(1, "the program was refused: %s", log);
	return fd;
}

/* From "PORT:PPS" into the map's next place. */
static uint16_t set_rate(int map, uint32_t i, const char *text)
{
	struct police one = { 0 };
	union bpf_attr attr = {
		.map_fd = map, .key = (uintptr_t)&i, .value = (uintptr_t)&one,
	};
	uint16_t port;
	double pps;

	if (sscanf(text, "%hu:%lf", &port, &pps) != 2 || pps < 0)
		errx(2, "not PORT:PPS: %s", text);
	if (pps)
		one.gap_ns = NSEC_PER_SEC / pps;
	else
		one.next_ns = UINT64_MAX;
	bpf(BPF_MAP_UPDATE_ELEM, &attr, "a rate");
	return port;
}

static void print_dropped(int map, const uint16_t *ports, unsigned int n)
{
	printf("{");
	for (uint32_t i = 0; i < n; i++) {
		struct police one;
		union bpf_attr attr = {
			.map_fd = map, .key = (uintptr_t)&i, .value = (uintptr_t)&one,
		};

		bpf(BPF_MAP_LOOKUP_ELEM, &attr, "a count");
		printf("%s\"%u\": %lu", i ? ", " : "", ports[i], one.dropped);
	}
	puts("}");
}

int main(int argc, char **argv)
{
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_ARRAY,
		.key_size = sizeof(uint32_t),
		.value_size = sizeof(struct police),
		.max_entries = MAX_PORTS,
	};
	uint16_t ports[MAX_PORTS];
	bool native = argc > 1 && !strcmp(argv[1], "-n");
	unsigned int n;
	int map, signalled;
	sigset_t signals;

	argc -= native;
	argv += native;
	n = argc - 2;
	if (argc < 3 || n > MAX_PORTS)
		errx(2, "usage: xdp_police [-n] DEVICE PORT:PPS...");
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	map = bpf(BPF_MAP_CREATE, &attr, "a map");
	for (uint32_t i = 0; i < n; i++)
		ports[i] = set_rate(map, i, argv[i + 2]);
	attr = (union bpf_attr){
		.link_create.prog_fd = load(map, ports, n),
		.link_create.target_ifindex = if_nametoindex(argv[1]),
		.link_create.attach_type = BPF_XDP,
		.link_create.flags = native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE,
	};
	/* The link ends with this process. */
	bpf(BPF_LINK_CREATE, &attr, argv[1]);
	sigwait(&signals, &signalled);
	print_dropped(map, ports, n);
	return 0;
}
