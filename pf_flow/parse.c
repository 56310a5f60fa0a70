// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parse: the words of a line that defines a flow.
 *
 *	NAME [default] [src=PREFIX] [dst=PREFIX] [proto=NAME] [sport=PORT] [dport=PORT] [dev=DEVICE]
 *	     [family=4|6] [mark=VALUE[/MASK]] [rank=NUMBER] [cgroup=PATH]
 *	     [rate=RATE] [peak=RATE] [burst=BYTES] [queue=BYTES] [weight=NUMBER]
 *
 * A rate is in bits a second, or with k, m, g behind it in thousands, millions, milliards, and
 * "bit" may follow. Bytes take k, m for 1024 and 1024^2. Functions return NULL, or what is
 * wrong.
 *
 * Context: process, under flow_mutex.
 */
#include <linux/cgroup.h>
#include <linux/ctype.h>
#include <linux/inet.h>
#include <linux/ipv6.h>
#include <linux/string.h>

#include "flow.h"

static const struct {
	const char *name;
	u8 number;
} protocols[] = {
	{ "icmp", IPPROTO_ICMP }, { "tcp", IPPROTO_TCP }, { "udp", IPPROTO_UDP },
	{ "gre", IPPROTO_GRE }, { "esp", IPPROTO_ESP }, { "icmpv6", IPPROTO_ICMPV6 },
	{ "sctp", IPPROTO_SCTP }, { "udplite", IPPROTO_UDPLITE },
};

/* A number with one of these letters behind it; what is left of the text after both. */
static bool number_parse(char *text, const char *letters, u32 step, u64 *value, char **rest)
{
	size_t digits = strspn(text, "0123456789");
	char letter = text[digits];
	const char *found;
	u64 times = 1;

	text[digits] = '\0';
	if (!digits || kstrtou64(text, 10, value))
		return false;
	*rest = text + digits;
	if (!letter)
		return true;
	found = strchr(letters, tolower(letter));
	if (!found) {
		**rest = letter;
		return true;
	}
	(*rest)++;
	for (; found >= letters; found--)
		times *= step;
	return !check_mul_overflow(*value, times, value);
}

static bool number_within(char *text, u64 least, u64 most, u64 *value)
{
	char *rest;

	return number_parse(text, "", 1, value, &rest) && !*rest &&
	       *value >= least && *value <= most;
}

static bool rate_parse(char *text, u64 *rate)
{
	char *rest;

	return number_parse(text, "kmg", 1000, rate, &rest) &&
	       (!*rest || !strcasecmp(rest, "bit")) &&
	       *rate && *rate <= PFLOW_RATE_MOST;
}

static bool bytes_parse(char *text, u32 *bytes)
{
	char *rest;
	u64 value;

	if (!number_parse(text, "km", 1024, &value, &rest) || *rest || !value ||
	    value > PFLOW_BURST_MOST)
		return false;
	*bytes = value;
	return true;
}

static bool port_parse(char *text, __be16 *port, __be16 *mask)
{
	u64 value;

	if (!number_within(text, 1, U16_MAX, &value))
		return false;
	*port = htons(value);
	*mask = htons(U16_MAX);
	return true;
}

static bool sport_parse(char *text, struct flow_pattern *match)
{
	return port_parse(text, &match->key.sport, &match->mask.sport);
}

static bool dport_parse(char *text, struct flow_pattern *match)
{
	return port_parse(text, &match->key.dport, &match->mask.dport);
}

static bool match_set_family(struct flow_pattern *match, u8 family)
{
	if (match->mask.family && match->key.family != family)
		return false;
	match->key.family = family;
	match->mask.family = U8_MAX;
	return true;
}

static bool prefix_parse(char *text, struct flow_pattern *match, __be32 *address, __be32 *mask)
{
	char *length = strchr(text, '/');
	bool v6 = strchr(text, ':');
	u64 bits = v6 ? 128 : 32;
	unsigned int i;

	if (length) {
		*length++ = '\0';
		if (!number_within(length, 0, bits, &bits))
			return false;
	}
	if (!(v6 ? in6_pton(text, -1, (u8 *)address, -1, NULL) :
	      in4_pton(text, -1, (u8 *)address, -1, NULL)))
		return false;
	for (i = 0; i < 4; i++) {
		unsigned int here = min_t(u64, bits, 32);

		mask[i] = here ? htonl(U32_MAX << (32 - here)) : 0;
		if (address[i] & ~mask[i])
			return false;
		bits -= here;
	}
	return match_set_family(match, v6 ? NFPROTO_IPV6 : NFPROTO_IPV4);
}

static bool src_parse(char *text, struct flow_pattern *match)
{
	return prefix_parse(text, match, match->key.source, match->mask.source);
}

static bool dst_parse(char *text, struct flow_pattern *match)
{
	return prefix_parse(text, match, match->key.destination, match->mask.destination);
}

static bool protocol_parse(char *text, struct flow_pattern *match)
{
	unsigned int i;
	u64 value;

	match->mask.protocol = U8_MAX;
	for (i = 0; i < ARRAY_SIZE(protocols); i++) {
		if (!strcmp(text, protocols[i].name)) {
			match->key.protocol = protocols[i].number;
			return true;
		}
	}
	if (!number_within(text, 1, U8_MAX, &value))
		return false;
	match->key.protocol = value;
	return true;
}

static bool mark_parse(char *text, struct flow_pattern *match)
{
	char *mask = strchr(text, '/');

	match->mask.mark = U32_MAX;
	if (mask) {
		*mask++ = '\0';
		if (kstrtou32(mask, 0, &match->mask.mark) || !match->mask.mark)
			return false;
	}
	return !kstrtou32(text, 0, &match->key.mark) && !(match->key.mark & ~match->mask.mark);
}

static bool rank_parse(char *text, struct flow_pattern *match)
{
	u64 value;

	if (!number_within(text, 0, PFLOW_RANK_DEADLINE, &value))
		return false;
	match->key.rank = FLOW_RANK_OF(value);
	match->mask.rank = U8_MAX;
	return true;
}

static const char *device_parse(const struct net *net, const char *name, struct flow_pattern *match)
{
	const struct net_device *dev;

	if (strscpy(match->device, name, sizeof(match->device)) <= 0)
		return "no name of a device";
	rcu_read_lock();
	dev = dev_get_by_name_rcu((struct net *)net, name);
	match->key.iif = dev ? dev->ifindex : 0;
	rcu_read_unlock();
	match->mask.iif = U32_MAX;
	return dev ? NULL : "there is no such device in this network namespace";
}

static bool cgroup_parse(char *path, struct flow_pattern *match)
{
#if IS_ENABLED(CONFIG_SOCK_CGROUP_DATA)
	struct cgroup *cgroup = cgroup_get_from_path(path);

	if (IS_ERR(cgroup))
		return false;
	match->key.cgroup = cgroup_id(cgroup);
	match->mask.cgroup = U64_MAX;
	cgroup_put(cgroup);
	return true;
#else
	return false;
#endif
}

static bool family_parse(char *text, struct flow_pattern *match)
{
	if (!strcmp(text, "4"))
		return match_set_family(match, NFPROTO_IPV4);
	return !strcmp(text, "6") && match_set_family(match, NFPROTO_IPV6);
}

/**
 * flow_parse_name() - take a flow's name from a line
 * @rest: what is left of the line
 * @name: filled in, FLOW_NAME bytes
 *
 * Return: NULL, or what is wrong.
 */
const char *flow_parse_name(char **rest, char *name)
{
	char *word;

	if (!*rest)
		return "a name is missing";
	*rest = skip_spaces(*rest);
	word = strsep(rest, " ");
	if (!*word)
		return "a name is missing";
	if (strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
	    strlen(word))
		return "a name is made of letters, digits, '.', '_' and '-'";
	return strscpy(name, word, FLOW_NAME) < 0 ? "the name is too long" : NULL;
}

static const struct {
	const char *name;
	bool (*parse)(char *text, struct flow_pattern *match);
	const char *wrong;
} match_words[] = {
	{ "src", src_parse, "src is no prefix, or longer than it says, or of the other family" },
	{ "dst", dst_parse, "dst is no prefix, or longer than it says, or of the other family" },
	{ "proto", protocol_parse, "proto is no protocol that is known" },
	{ "sport", sport_parse, "sport is no port" },
	{ "dport", dport_parse, "dport is no port" },
	{ "family", family_parse, "family is not 4 or 6, or another one than that of a prefix" },
	{ "mark", mark_parse, "mark is no value, or has bits that do not count" },
	{ "rank", rank_parse, "rank is not of 0 to 140" },
	{ "cgroup", cgroup_parse, "cgroup is no control group that is there" },
};

/**
 * flow_parse_match() - take a word that says which packets are meant
 * @net: in whose namespace
 * @word: it; written to, if it is such a word
 * @match: what is known so far
 * @taken: filled in: it is such a word
 *
 * Return: NULL, or what is wrong.
 */
const char *flow_parse_match(const struct net *net, char *word, struct flow_pattern *match,
			     bool *taken)
{
	char *value = strchr(word, '=');
	size_t length = value ? value++ - word : strlen(word);
	unsigned int i;

	*taken = true;
	if (!strcmp(word, "default")) {
		match->fallback = true;
		return NULL;
	}
	if (value && !strncmp(word, "dev=", 4))
		return device_parse(net, value, match);
	for (i = 0; value && i < ARRAY_SIZE(match_words); i++)
		if (length == strlen(match_words[i].name) &&
		    !strncmp(word, match_words[i].name, length))
			return match_words[i].parse(value, match) ? NULL : match_words[i].wrong;
	*taken = false;
	return NULL;
}

/**
 * flow_parse_shape() - take a word that says what a flow may do
 * @word: it; written to
 * @shape: what is known so far
 *
 * Return: NULL, or what is wrong.
 */
const char *flow_parse_shape(char *word, struct flow_shape *shape)
{
	char *value = strchr(word, '=');
	u64 weight;

	if (!value)
		return "a word that is not known";
	*value++ = '\0';
	if (!strcmp(word, "rate"))
		return rate_parse(value, &shape->rate) ? NULL : "rate is not of 1 to 1000g bits/s";
	if (!strcmp(word, "peak"))
		return rate_parse(value, &shape->peak) ? NULL : "peak is not of 1 to 1000g bits/s";
	if (!strcmp(word, "burst"))
		return bytes_parse(value, &shape->burst) ? NULL : "burst is not of 1 to 1024m";
	if (!strcmp(word, "queue"))
		return bytes_parse(value, &shape->queue) ? NULL : "queue is not of 1 to 1024m";
	if (strcmp(word, "weight"))
		return "a word that is not known";
	if (!number_within(value, 1, PFLOW_WEIGHT_MOST, &weight))
		return "weight is not of 1 to 1000";
	shape->weight = weight;
	return NULL;
}
