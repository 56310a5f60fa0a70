/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which sockets have the places of the table when it is full; see quota.c. The table asks here
 * before it enters a socket, and for each entry whether it gives way.
 */
#ifndef _PFLOW_SOCKETS_QUOTA_H
#define _PFLOW_SOCKETS_QUOTA_H

#include "../socket.h"

/**
 * struct pflow_newcomer - a socket that is to be entered
 * @user: where its user's entries are counted
 * @tcp: it is TCP's
 * @receives: it was seen receiving
 */
struct pflow_newcomer {
	u8 user;
	bool tcp;
	bool receives;
};

void pflow_quota_setup(void);
unsigned int pflow_quota_used(void);
void pflow_quota_newcomer(const struct sock *sk, bool receives, struct pflow_newcomer *newcomer);
void pflow_quota_enter(struct pflow_sock *entry, const struct pflow_newcomer *newcomer);
void pflow_quota_leave(const struct pflow_sock *entry);
bool pflow_quota_full(void);
bool pflow_quota_may_displace(const struct pflow_newcomer *newcomer);
bool pflow_quota_gives_way(const struct pflow_sock *entry, const struct pflow_newcomer *newcomer,
			   bool hard);

#endif
