# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own tests of the network and of netfilter, without our modules and with them."""
