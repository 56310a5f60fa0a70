#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# To be sourced: how more of Debian's archive is put into the root that tools/setup made, and the
# kernels that the archive has. Whoever sources it has die().
#
# A kernel has the name of its release series, and of its flavour if it has one: 6.1, 6.12-rt,
# 7.x-cloud. "7.x" stands for the newest release 7 there is, see tests/rig/kernels.py.

cache=$(readlink -m "${PACKETFLOW_CACHE:-/var/cache/packetflow}")
chroot=$cache/root

in_chroot() {
	chroot "$chroot" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
		DEBIAN_FRONTEND=noninteractive INITRD=No ${http_proxy:+http_proxy="$http_proxy"} \
		${https_proxy:+https_proxy="$https_proxy"} "$@"
}

# The root is held, and its apt has lists, until the script ends. To be told: where to log.
open_root() {
	local log=$1
	[ "$(id -u)" -eq 0 ] || die "must be root"
	[ -e "$chroot/.packetflow" ] || die "there is no root in $cache yet: run \"make setup\" first"
	exec 9>"$cache/setup.lock"
	flock --nonblock 9 || die "another setup is running"
	trap 'in_chroot sh -c "apt-get clean; rm -rf /var/lib/apt/lists/* /tmp/*"' EXIT
	in_chroot apt-get update >"$log" 2>&1 || die "the mirror is not in reach, see $log"
}

# All kernels that have both image and headers, oldest first: a line "NAME RELEASE" for each.
archive() {
	in_chroot apt-cache search --names-only '^linux-(image|headers)-[0-9].*-amd64$' |
		sed -E 's/ .*//;s/^linux-(image|headers)-//' | sort -V | uniq -d |
		sed -nE 's/^([0-9]+\.[0-9]+)\.[0-9][^-]*(-[0-9]+)?(-rt|-cloud|)-amd64$/\1\3 &/p' |
		sed -E 's/^7\.[0-9]+/7.x/'
}

# The newest kernel of a name, as the release in its packages' names.
release_of() {
	archive | awk -v name="$1" '$1 == name { release = $2 } END { print release }'
}

# Headers are installed; of the image only the files are wanted, not what its
# installation would do (initramfs, boot loader). From 7.x the image is split.
# An old package ships /lib as a directory: it must not replace the link. What a guest with a
# cloud kernel needs, see tests/rig/share.py, comes with such a kernel.
kernel() {
	local release packages
	release=$(release_of "$1")
	[ -n "$release" ] || {
		echo "the archive has no kernel $1"
		return 1
	}
	echo "kernel $1 is $release"
	in_chroot apt-get install --yes "linux-headers-$release"
	[[ $1 != *-cloud ]] || in_chroot apt-get install --yes virtiofsd lz4
	packages=$(in_chroot apt-cache pkgnames | grep -xE "linux-(image|binary|modules)-${release//+/\\+}")
	# shellcheck disable=SC2016,SC2086 # for the inner shell; a list
	in_chroot sh -euc '
		cd /tmp && apt-get download "$@"
		for package in *.deb; do
			dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C /
		done
		rm -- *.deb
	' sh $packages
	in_chroot depmod "$release"
}
