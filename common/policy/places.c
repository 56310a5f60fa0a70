// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places: who has them where there are fewer than are wanted. Such are the places of raised threads,
 * of threads that are followed, and of sockets that lose packets.
 *
 * Who is more important takes the place of the least important. Among equals, who has fewer places
 * takes one of a user that has more, until they have about as many. So a crowd of one user cannot
 * have all of them.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#include "../policy.h"

/* The index of the least important, or -1 if nobody is less important than @rank. */
static int places_find_least(const u16 *ranks, unsigned int number, u16 rank)
{
	int least = -1;
	unsigned int i;

	for (i = 0; i < number; i++)
		if (ranks[i] < rank && (least < 0 || ranks[i] < ranks[least]))
			least = i;
	return least;
}

/**
 * pflow_places_of() - how many places a user has
 * @users: whose the places are
 * @number: of places
 * @user: who
 *
 * Context: any. Return: how many.
 */
unsigned int pflow_places_of(const u32 *users, unsigned int number, u32 user)
{
	unsigned int places = 0, i;

	for (i = 0; i < number; i++)
		places += users[i] == user;
	return places;
}
EXPORT_SYMBOL_GPL(pflow_places_of);

/**
 * pflow_gives_way() - who has to make room for another?
 * @ranks: of those who have the places; or their levels
 * @users: whose they are
 * @number: of places
 * @rank: of who wants one; or its level
 * @user: whose it is
 *
 * The least important gives way, if it is less important. Otherwise one that is as important gives
 * way, if its user has more places even with one less than @user has. So who gave way cannot take
 * the place back.
 *
 * Context: any. Return: the index, or -1 for nobody.
 */
int pflow_gives_way(const u16 *ranks, const u32 *users, unsigned int number, u16 rank, u32 user)
{
	unsigned int own = pflow_places_of(users, number, user);
	int who = places_find_least(ranks, number, rank);
	unsigned int i;

	if (who >= 0)
		return who;
	/* Nobody is less important: all that may give way are equals. */
	for (i = 0; i < number; i++)
		if (ranks[i] == rank && pflow_places_of(users, number, users[i]) > own + 1)
			return i;
	return -1;
}
EXPORT_SYMBOL_GPL(pflow_gives_way);
