#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# To be sourced: Debian's source of a kernel series, the package linux-source-SERIES. Whoever
# sources it has die().

cache=$(readlink -m "${PACKETFLOW_CACHE:-/var/cache/packetflow}")

# Where it is, below a root or "" within it. The root comes with one; others are fetched.
source_of() {
	local package=linux-source-$1
	if [ -e "$2/usr/src/$package.tar.xz" ]; then
		echo "$2/usr/src/$package.tar.xz"
	else
		echo "$cache/sources/$package.tar.xz"
	fi
}

# By the root's own apt, but outside tools/in-root, where no network is. The root stays as it is.
fetch_source() {
	local root=$cache/root package=linux-source-$1 work
	[ ! -e "$(source_of "$1" "$root")" ] || return 0
	[ -x "$root/usr/bin/python3" ] || die "there is no root in $cache yet: run \"make setup\" first"
	echo "fetching $package"
	work=$(mktemp -d "$root/tmp/source.XXXXXX")
	# shellcheck disable=SC2064 # the path as it is now
	trap "rm -rf '$work'" EXIT
	mkdir -p "$work"/{lists,cache}/partial "$work/cache/archives/partial" "$cache/sources"
	# shellcheck disable=SC2016 # for the inner shell
	chroot "$root" env -i --chdir="${work#"$root"}" PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
		${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} sh -euc '
			options="-qq -o APT::Sandbox::User=root -o Dir::State::Lists=$PWD/lists -o Dir::Cache=$PWD/cache"
			apt-get $options update
			apt-get $options download "$1"
			dpkg-deb --extract "$1"_*.deb .
		' sh "$package" ||
		die "$package cannot be had: the mirror is not in reach, or it has no such package"
	mv "$work/usr/src/$package.tar.xz" "$cache/sources/$package.part"
	mv "$cache/sources/$package.part" "$cache/sources/$package.tar.xz"
	rm -rf "$work"
	trap - EXIT
}
