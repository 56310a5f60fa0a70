// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places: who has them where there are fewer than are wanted. Raised threads have such places, and
 * so have threads that are followed, and sockets that lose packets.
 *
 * Who is more important takes the place of the least important. Among equals, a user that has fewer
 * takes a place of one that has more, until they have about as many. So a crowd of one user cannot
 * have all of them. What users have above their equals does not count.
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

/* How many places of that rank a user has. */
static unsigned int places_of_rank(const u16 *ranks, const u32 *users, unsigned int number,
				   u16 rank, u32 user)
{
	unsigned int places = 0, i;

	for (i = 0; i < number; i++)
		places += ranks[i] == rank && users[i] == user;
	return places;
}

/**
 * pflow_gives_way() - who has to make room for another?
 * @ranks: of those who have the places; or their levels
 * @users: whose they are
 * @number: of places
 * @rank: of who wants one; or its level
 * @user: whose it is
 *
 * The least important gives way, if it is less important. Otherwise an equal gives way, if its user
 * still has more equals there than @user after that exchange, or as many. So who gave way cannot
 * take a place of the same set back.
 *
 * Context: any. Return: the index, or -1 for nobody.
 */
int pflow_gives_way(const u16 *ranks, const u32 *users, unsigned int number, u16 rank, u32 user)
{
	unsigned int own = places_of_rank(ranks, users, number, rank, user);
	int who = places_find_least(ranks, number, rank);
	unsigned int i;

	if (who >= 0)
		return who;
	/* Nobody is less important: all that may give way are equals. */
	for (i = 0; i < number; i++)
		if (ranks[i] == rank &&
		    places_of_rank(ranks, users, number, rank, users[i]) > own + 1)
			return i;
	return -1;
}
EXPORT_SYMBOL_GPL(pflow_gives_way);
