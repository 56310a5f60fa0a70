// SPDX-License-Identifier: GPL-2.0-only
/*
 * For a test: sockets that are bound and closed where a kprobe cannot see it.
 *
 * A descriptor that is written to one of its parameters names a socket. What the
 * parameter is called is done to it in the handler of a kprobe, on whose CPU no other
 * kprobe's handler is called meanwhile: each hit is counted as missed.
 *
 * The handler is not allowed to sleep, and what it calls might; it does not, as nobody
 * else has a hold of the socket.
 */
#include <linux/file.h>
#include <linux/in.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/net.h>

/* Called as a function of the kernel is, and looked into; the result is the handler's. */
static __attribute__((noipa)) int unseen(struct socket *sock, bool bind, int *result)
{
	barrier();
	return *result;
}

static int in_handler(struct kprobe *kp, struct pt_regs *regs)
{
	struct socket *sock = (struct socket *)regs_get_kernel_argument(regs, 0);
	bool bind = regs_get_kernel_argument(regs, 1);
	int *result = (int *)regs_get_kernel_argument(regs, 2);
	struct sockaddr_in any = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};

	*result = bind ? sock->ops->bind(sock, (void *)&any, sizeof(any)) :
			 sock->ops->release(sock);
	return 0;
}

static struct kprobe probe = { .pre_handler = in_handler };

static int set(const char *text, const struct kernel_param *kp)
{
	struct socket *sock;
	int fd, err;

	err = kstrtoint(text, 10, &fd);
	if (err)
		return err;
	sock = sockfd_lookup(fd, &err);
	if (!sock)
		return err;
	err = unseen(sock, kp->arg, &err);
	sockfd_put(sock);
	return err;
}

static const struct kernel_param_ops ops = { .set = set };

module_param_cb(bind, &ops, (void *)true, 0200);
MODULE_PARM_DESC(bind, "descriptor of a socket to bind to the loopback");
module_param_cb(release, &ops, (void *)false, 0200);
MODULE_PARM_DESC(release, "descriptor of a socket to close but for the descriptor");

static int __init missing_init(void)
{
	probe.addr = (kprobe_opcode_t *)unseen;
	return register_kprobe(&probe);
}

static void __exit missing_exit(void)
{
	unregister_kprobe(&probe);
}

module_init(missing_init);
module_exit(missing_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Hits that kprobes miss, for a test of PacketFlow");
