# SPDX-License-Identifier: GPL-2.0-only
"""The rig: stock kernels in virtual machines on a link of their own.

Everything here runs under tools/in-root, so that the current network
namespace is the sender's machine.
"""
