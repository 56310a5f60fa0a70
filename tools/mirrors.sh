#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# To be sourced: where this host's apt gets packages from, for the apt of another root. Whoever
# sources it has die().

# This host's mirrors: a line "SITE RELEASE" for each source.
sources() {
	# shellcheck disable=SC2016 # the names are apt's own
	apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' 'Component: main' | sort -u
}

# The list of sources for these suites, with their security updates.
mirror_list() {
	local debian security suite
	debian=$(sources | awk '$2 ~ /^(bookworm|trixie|stable|oldstable)$/ { print $1; exit }')
	security=$(sources | awk '$2 ~ /-security$/ { print $1; exit }')
	[ -n "$debian" ] || die "this host's apt knows no mirror of Debian bookworm or trixie"
	for suite in "$@"; do
		echo "deb $debian $suite main"
		[[ "$suite" = *-* || -z "$security" ]] || echo "deb $security $suite-security main"
	done
}

# How this host reaches its mirror, for the apt of the new root.
apt_options() {
	echo 'APT::Install-Recommends "false";'
	apt-config dump --format '%F "%v";%n' Acquire |
		grep -E '^Acquire::(https?|Retries|Check-(Date|Valid-Until)|ForceIPv)[:4 6]' | grep -v ' "";$' || true
}
