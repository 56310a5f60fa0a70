// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harm by loss. A UDP receiver loses what finds its buffer full. Lost and arrived packets are
 * counted for each that loses any, over a window of 50 ms or 64 packets, whichever is longer. A
 * few losses in a window are ignored. It counts as harm only where the receiver is kept
 * from running: one that sleeps while its buffer is full is slow by itself, though it has to
 * wait for its turn now and then.
 *
 * Context: victims_enter() in softirq, on the CPU where a packet arrives; the rest by the
 * controllers' tick.
 */
#define VICTIMS		16	/* losing receivers that are watched, on each CPU */
#define AWAKE_US	1000000u	/* so long, or to wait once would make it awake */
#define ASSUMED_FOR	max(HZ / 5, 1)	/* what is shed shows within half as long */

/**
 * struct victim - a receiver that loses packets
 * @sk: its socket, with @cookie an identity; NULL: this slot is free
 * @cookie: of the socket
 * @level: its level
 * @user: pflow_sock_user()
 * @arrived_seen: pflow_sock.arrived at the last tick
 * @lost_seen: pflow_sock.lost at the last tick
 * @losses: what it was sent and lost lately
 * @lost_at: jiffies when it last lost any
 * @awake: 0..65536, share of the time for which its receiver ran or wanted to, a decaying mean
 * @awake_us: how long that is the mean of, from when it entered, at most %AWAKE_US
 */
struct victim {
	const struct sock *sk;
	u64 cookie;
	u16 level;
	u32 user;
	u32 arrived_seen;
	u32 lost_seen;
	struct pflow_losses losses;
	u32 lost_at;
	u32 awake;
	u32 awake_us;
};

static struct victim *victim_find_slot(struct victim *victims, u16 level, u32 user)
{
	u16 levels[VICTIMS];
	u32 users[VICTIMS];
	unsigned int i;
	int who;

	for (i = 0; i < VICTIMS; i++) {
		if (!READ_ONCE(victims[i].sk))
			return &victims[i];
		levels[i] = READ_ONCE(victims[i].level);
		users[i] = READ_ONCE(victims[i].user);
	}
	who = pflow_gives_way(levels, users, VICTIMS, level, user);
	return who < 0 ? NULL : &victims[who];
}

/*
 * Is the receiver at it? A socket that nobody reads overflows too, but not
 * since others take the CPU.
 */
static bool entry_is_receiving(const struct pflow_sock *entry)
{
	return pflow_recent(READ_ONCE(entry->drained), PFLOW_HOLD) ||
	       (READ_ONCE(entry->learnt) == PFLOW_RECEIVES &&
		pflow_recent(READ_ONCE(entry->last_received), PFLOW_HOLD));
}

/*
 * Who is kept from the CPU is not seen receiving. So whoever holds a socket that has just become
 * full is taken to receive, for a moment: if packets keep it, shedding lets it be seen by then.
 */
static void entry_assume_receiving(struct pflow_sock *entry)
{
	if (!pflow_recent(READ_ONCE(entry->drained), PFLOW_HOLD - ASSUMED_FOR))
		WRITE_ONCE(entry->drained, (u32)jiffies - PFLOW_HOLD + ASSUMED_FOR);
}

/**
 * victims_enter() - a receiver has begun to lose packets
 * @victims: of the CPU that it runs on
 * @entry: the receiver
 * @level: its level
 * @packets: how many it lost just now
 *
 * Of two CPUs that write one slot at once the tick may find a mixture: it is no socket's.
 */
static void victims_enter(struct victim *victims, struct pflow_sock *entry, u16 level,
			  unsigned int packets)
{
	struct victim *victim;
	unsigned int i;
	u32 user;

	for (i = 0; i < VICTIMS; i++)
		if (READ_ONCE(victims[i].sk) == entry->sk)
			return;
	/* Its buffer has just been found full: the socket is there, and RCU keeps it for now. */
	user = pflow_sock_user(entry, entry->sk);
	victim = victim_find_slot(victims, level, user);
	if (!victim)
		return;
	WRITE_ONCE(victim->cookie, entry->cookie);
	WRITE_ONCE(victim->level, level);
	WRITE_ONCE(victim->user, user);
	WRITE_ONCE(victim->arrived_seen, READ_ONCE(entry->arrived) - packets);
	WRITE_ONCE(victim->lost_seen, READ_ONCE(entry->lost) - packets);
	WRITE_ONCE(victim->losses.arrived, 0);
	WRITE_ONCE(victim->losses.lost, 0);
	WRITE_ONCE(victim->lost_at, (u32)jiffies);
	/* At an onset nobody has to wait until it is known that he is awake. */
	WRITE_ONCE(victim->awake, PFLOW_ONE);
	WRITE_ONCE(victim->awake_us, PFLOW_LOSS_WINDOW_US);
	WRITE_ONCE(victim->sk, entry->sk);
}

static bool victims_any(const struct victim *victims)
{
	unsigned int i;

	for (i = 0; i < VICTIMS; i++)
		if (READ_ONCE(victims[i].sk))
			return true;
	return false;
}

static bool victims_above(const struct victim *victims, u16 level)
{
	unsigned int i;

	for (i = 0; i < VICTIMS; i++)
		if (READ_ONCE(victims[i].sk) && READ_ONCE(victims[i].level) > level)
			return true;
	return false;
}

/* Count what a victim was sent and lost since the last tick; gives the share that it loses. */
static u32 victim_count_loss(struct victim *victim, const struct pflow_sock *entry, u32 elapsed_us)
{
	struct pflow_losses losses = {
		.arrived = READ_ONCE(victim->losses.arrived),
		.lost = READ_ONCE(victim->losses.lost),
	};
	u32 arrived = READ_ONCE(entry->arrived), lost = READ_ONCE(entry->lost);
	/* Where several CPUs count at once, a count may step back. */
	u32 more_arrived = max_t(s32, arrived - READ_ONCE(victim->arrived_seen), 0);
	u32 more_lost = max_t(s32, lost - READ_ONCE(victim->lost_seen), 0);
	u32 share = pflow_losses_step(&losses, more_arrived, more_lost, READ_ONCE(entry->rate),
				      elapsed_us);

	WRITE_ONCE(victim->arrived_seen, arrived);
	WRITE_ONCE(victim->lost_seen, lost);
	WRITE_ONCE(victim->losses.arrived, losses.arrived);
	WRITE_ONCE(victim->losses.lost, losses.lost);
	if (more_lost)
		WRITE_ONCE(victim->lost_at, (u32)jiffies);
	else if (!pflow_recent(READ_ONCE(victim->lost_at), PFLOW_HOLD))
		WRITE_ONCE(victim->sk, NULL);
	return share;
}

/* Follow how much of the time a victim's receiver is awake. */
static void victim_note_awake(struct victim *victim, const struct pflow_thread *thread,
			      u32 elapsed_us)
{
	u32 before = READ_ONCE(victim->awake);
	u32 of_us = min(READ_ONCE(victim->awake_us) + elapsed_us, AWAKE_US);
	s64 step = ((s64)thread_awake_share(thread) - before) * min(elapsed_us, of_us);

	WRITE_ONCE(victim->awake, before + (s32)div_s64(step, of_us));
	WRITE_ONCE(victim->awake_us, of_us);
}

/* Does a victim lose for want of CPU? Of one whose thread is not known yet it is assumed. */
static bool victim_must_be_shed_for(struct victim *victim, const struct pflow_thread *thread,
				    u32 elapsed_us)
{
	u32 awake;

	if (!thread)
		return true;
	victim_note_awake(victim, thread, elapsed_us);
	awake = min(thread_awake_share(thread), READ_ONCE(victim->awake));
	return pflow_kept_from_running(awake, READ_ONCE(thread->wait));
}

static u32 thread_slept(const struct pflow_thread *thread)
{
	return thread ? pflow_slept(READ_ONCE(thread->wait), READ_ONCE(thread->run)) : 0;
}

/* The thread that receives for an entry, as far as it is known, and how it spends its time. */
static const struct pflow_thread *entry_thread(const struct pflow_sock *entry)
{
	const struct pflow_thread *thread = pflow_thread_find(READ_ONCE(entry->pid));

	return thread && READ_ONCE(thread->born) == READ_ONCE(entry->born) &&
	       READ_ONCE(thread->known_us) ? thread : NULL;
}

/*
 * Note of which level a victim is now. If it was more important before, nobody of that level is
 * harmed: who holds the socket was taken for its receiver until that was seen, or the receiver has
 * become less important.
 */
static u16 victim_take_level(struct victim *victim, const struct pflow_sock *entry,
			     struct harm *worst)
{
	u16 before = READ_ONCE(victim->level), level = filter_level(entry);

	if (pflow_level_outranks(before, level))
		harm_note_ceased(worst, before);
	WRITE_ONCE(victim->level, level);
	return level;
}

static void harm_weigh_losses(struct harm *worst, struct victim *victims,
			      const struct usage *usage, const struct order *order,
			      struct pflow_cut cut, u32 elapsed_us)
{
	u32 spare = PFLOW_ONE;
	bool any = false;
	unsigned int i;

	for (i = 0; i < VICTIMS; i++) {
		struct victim *victim = &victims[i];
		const struct sock *sk = READ_ONCE(victim->sk);
		const struct pflow_thread *thread;
		const struct pflow_sock *entry;
		bool kept;
		u16 level;
		u32 loss;

		if (!sk)
			continue;
		entry = pflow_sock_find_as(sk, READ_ONCE(victim->cookie));
		thread = entry ? entry_thread(entry) : NULL;
		/* Of one that has gone to another CPU what it loses there counts there. */
		if (!entry || (thread && !pflow_thread_on(thread, usage->cpu))) {
			WRITE_ONCE(victim->sk, NULL);
			continue;
		}
		if (!entry_is_receiving(entry)) {
			harm_note_ceased(worst, filter_level(entry));
			WRITE_ONCE(victim->sk, NULL);
			continue;
		}
		level = victim_take_level(victim, entry, worst);
		loss = victim_count_loss(victim, entry, elapsed_us);
		if (level <= cut.level)
			continue;
		kept = victim_must_be_shed_for(victim, thread, elapsed_us);
		if (thread && kept && loss > LOSS_BEARABLE)
			harm_note_wait(usage, order, cut, level, READ_ONCE(thread->wait));
		if (!harm_can_be_helped(order, cut, level))
			continue;
		spare = min(spare, thread_slept(thread));
		any = true;
		if (kept)
			harm_keep_worst(worst, loss, level, FILTER_DROP_HARM);
	}
	if (any)
		worst->spare = spare;
}
