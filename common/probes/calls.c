// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who receives, and who answers: the system calls that receive or send.
 *
 * These handlers run for each call. They do something only while somebody watches: under pressure,
 * while a thread is raised, or during the estimator's short sample. From 6.3 on all these calls
 * pass a tracepoint as they return. That of sends is attached only while a CPU is under pressure or
 * has no time to spare, and for ten seconds after that. Before 6.3 even a call that does nothing
 * costs half a percent of a packet. So there probes are armed when they are first needed. They stay
 * armed, since disarming waits until every task has slept.
 *
 * Handlers run in the caller's context, as those of probes.c do. The caller holds the socket.
 *
 * Context: process, may sleep; handlers, as said above.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/net.h>
#include <net/sock.h>

#include "../compat/compat.h"
#include "../internal.h"

#define NEWS_AFTER	HZ	/* whoever was not seen for so long may be new */

static enum pflow_watch watching __read_mostly;
static DEFINE_PER_CPU(u32, stranger_at);	/* jiffies when one that is not known was looked at */

/*
 * Is the caller looked at? Who was seen doing this lately is no news. Of those who are not known,
 * one a jiffy is: some never have a slot, as those whose TCP peer is on this host.
 */
static bool caller_tells(bool sends)
{
	const struct pflow_thread *caller;
	u32 now = jiffies;

	if (READ_ONCE(watching) != PFLOW_WATCH_NEWS)
		return true;
	caller = pflow_thread_find(current->pid);
	if (!caller || READ_ONCE(caller->born) != pflow_task_born(current)) {
		if (sends || this_cpu_read(stranger_at) == now)
			return false;
		this_cpu_write(stranger_at, now);
		return true;
	}
	return sends ? !pflow_within(READ_ONCE(caller->answers_at), NEWS_AFTER) :
		       !pflow_recent(READ_ONCE(caller->seen), NEWS_AFTER);
}

static void owner_learn_receiver(const struct socket *sock)
{
	struct sock *sk = pflow_process_sock(sock);

	if (!sk || (current->flags & PF_KTHREAD) || !caller_tells(false))
		return;
	rcu_read_lock();
	pflow_owner_note_receive(sk);
	rcu_read_unlock();
}

/* inet_recvmsg(struct socket *sock, ...), inet6_recvmsg(struct socket *sock, ...) */
static int on_receive(struct kprobe *kp, struct pt_regs *regs)
{
	if (READ_ONCE(watching))
		owner_learn_receiver((struct socket *)regs_get_kernel_argument(regs, 0));
	return 0;
}

/* The same, called by ftrace. Nothing here receives, so it cannot recur. */
static void notrace on_receive_hot(unsigned long ip, unsigned long parent_ip,
				   struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	if (READ_ONCE(watching))
		owner_learn_receiver(pflow_ftrace_argument(fregs, 0));
}

/* Sockets of all families come here. The caller holds the file, so sk stays with its socket. */
static void on_received(void *unused, struct sock *sk, int length, int flags)
{
	if (READ_ONCE(watching) && (sk->sk_family == AF_INET || sk->sk_family == AF_INET6))
		owner_learn_receiver(sk->sk_socket);
}

static struct pflow_trace received = { "sock_recv_length", on_received };

static void owner_learn_sender(const struct sock *sk)
{
	if (sk->sk_protocol != IPPROTO_UDP || (current->flags & PF_KTHREAD) || !caller_tells(true))
		return;
	rcu_read_lock();
	pflow_owner_note_send(sk);
	rcu_read_unlock();
}

/* udp_sendmsg(struct sock *sk, ...), udpv6_sendmsg(struct sock *sk, ...) */
static int on_send(struct kprobe *kp, struct pt_regs *regs)
{
	if (READ_ONCE(watching))
		owner_learn_sender((struct sock *)regs_get_kernel_argument(regs, 0));
	return 0;
}

/* The same, called by ftrace. Nothing here sends, so it cannot recur. */
static void notrace on_send_hot(unsigned long ip, unsigned long parent_ip,
				struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	if (READ_ONCE(watching))
		owner_learn_sender(pflow_ftrace_argument(fregs, 0));
}

/* Sockets of all families come here. The kernel's own have no entry. */
static void on_sent(void *unused, struct sock *sk, int length, int flags)
{
	if (READ_ONCE(watching) && length >= 0 &&
	    (sk->sk_family == AF_INET || sk->sk_family == AF_INET6))
		owner_learn_sender(sk);
}

static struct pflow_trace sent = { "sock_send_length", on_sent };

/* These two tables are used only if the kernel has no tracepoint there. */
static struct pflow_probe receive_rows[] = {
	{ "inet_recvmsg", on_receive, PFLOW_PROBE_WATCHED, true,
	  "who receives cannot be learnt", on_receive_hot },
	{ "inet6_recvmsg", on_receive, PFLOW_PROBE_WATCHED, false,
	  "who receives on IPv6 sockets is guessed from who has them open", on_receive_hot },
};

static struct pflow_probe send_rows[] = {
	{ "udp_sendmsg", on_send, PFLOW_PROBE_WATCHED, false,
	  "who answers datagrams counts as harmed only once he reads late", on_send_hot },
	{ "udpv6_sendmsg", on_send, PFLOW_PROBE_WATCHED, false,
	  "who answers IPv6 datagrams counts as harmed only once he reads late", on_send_hot },
};

static struct pflow_probes receives = {
	.owner = THIS_MODULE, .rows = receive_rows, .nr_rows = ARRAY_SIZE(receive_rows),
};

static struct pflow_probes sends = {
	.owner = THIS_MODULE, .rows = send_rows, .nr_rows = ARRAY_SIZE(send_rows),
};

/**
 * struct calls - calls that are looked at while somebody watches
 * @trace: what they pass as they return
 * @probes: what they pass where the kernel has no such tracepoint
 * @traced: it has
 */
struct calls {
	struct pflow_trace *trace;
	struct pflow_probes *probes;
	bool traced;
};

enum { RECEIVES, SENDS };

static struct calls calls[] = {
	[RECEIVES] = { &received, &receives },
	[SENDS] = { &sent, &sends },
};

static void calls_detach(struct calls *call)
{
	if (!call->traced)
		pflow_probes_remove(call->probes);
	pflow_trace_detach(call->trace);
}

static int calls_attach(struct calls *call)
{
	int err = pflow_trace_attach(call->trace);

	call->traced = call->trace->point;
	return err || call->traced ? err : pflow_probes_add(call->probes);
}

/**
 * pflow_calls_setup() - attach to calls that receive; nobody watches yet
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then nothing
 * is left attached.
 */
int pflow_calls_setup(void)
{
	unsigned int i;
	int err;

	WRITE_ONCE(watching, PFLOW_WATCH_NONE);
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		err = calls_attach(&calls[i]);
		if (err) {
			while (i--)
				calls_detach(&calls[i]);
			return err;
		}
	}
	/* The kernel has it, or not: that is known now. */
	pflow_trace_detach(&sent);
	return 0;
}

/**
 * pflow_calls_teardown() - detach from all
 *
 * Context: process, may sleep. No handler runs any more when it returns.
 */
void pflow_calls_teardown(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(calls); i++)
		calls_detach(&calls[i]);
}

/**
 * pflow_calls_watch() - look at who receives and who answers, or not
 * @at: whom to look at
 *
 * Context: any.
 */
void pflow_calls_watch(enum pflow_watch at)
{
	WRITE_ONCE(watching, at);
}

/**
 * pflow_calls_arm() - have calls looked at that the kernel has no tracepoint for
 *
 * Context: process, may sleep. Return: whether any could not be looked at before.
 */
bool pflow_calls_arm(void)
{
	bool any = false;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(calls); i++)
		if (!calls[i].traced)
			any |= pflow_probes_arm(calls[i].probes);
	return any;
}

/**
 * pflow_calls_want_sends() - say whether anybody will look at sends
 * @on: which; it matters only where the kernel has a tracepoint for them
 *
 * Context: process, may sleep; one caller at a time.
 */
void pflow_calls_want_sends(bool on)
{
	if (!on)
		pflow_trace_detach(&sent);
	else if (calls[SENDS].traced && !sent.point && pflow_trace_attach(&sent))
		pr_warn_ratelimited("cannot see who answers datagrams: he counts as harmed only once he reads late\n");
}
