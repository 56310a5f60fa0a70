# SPDX-License-Identifier: GPL-2.0-only
#
# For users and developers. The modules' own rules are in Kbuild, which the
# kernel's build system reads in place of this file.

## kernel release to build and install for (the running one)
KVER            ?= $(shell uname -r)
## where that kernel's headers are
KDIR            ?= /lib/modules/$(KVER)/build
## root to install into, for packaging
DESTDIR         ?=
## where the programs and documents go
PREFIX          ?= /usr/local
## where the modules go, below /lib/modules/KVER
INSTALL_MOD_DIR ?= updates/packetflow
## private key to sign with (the one of DKMS)
SIGN_KEY        ?= /var/lib/dkms/mok.key
## its certificate
SIGN_CERT       ?= /var/lib/dkms/mok.pub
## what makes RPM packages
RPMBUILD        ?= rpmbuild
## kernel to demonstrate, measure or test with: 6.1, 6.12, 7.x (the newest 7 that Debian offers)
KERNEL          ?=
## kernels to test with: such as "6.1 6.12-rt 7.x-cloud"; all is the three above
KERNELS         ?= $(or $(KERNEL),all)
## what sends in the demo: light, or iperf3
TOOL            ?= light
## experiments of the bench, such as "U1 M1" (all)
EXPERIMENTS     ?=
## how often each arm of the bench is measured
REPEAT          ?= 3
## further options of the tests, as pytest has them
PYTEST          ?=
## parts of the names of the kernel's own tests that are wanted, such as "udpgro nft_" (all)
TESTS           ?=

VERSION := $(shell cat VERSION)
RELEASE  = $(shell sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' $(KDIR)/include/generated/utsrelease.h)
KBUILD   = $(MAKE) -C $(KDIR) M=$(CURDIR)
DKMS_DIR = $(DESTDIR)/usr/src/packetflow-$(VERSION)
DOC_DIR  = $(DESTDIR)$(PREFIX)/share/doc/packetflow
SBIN_DIR = $(DESTDIR)$(PREFIX)/sbin
MAN_DIR  = $(DESTDIR)$(PREFIX)/share/man/man8
UNIT_DIR = $(DESTDIR)$(PREFIX)/lib/systemd/system
ETC_FILE = $(DESTDIR)/etc/packetflow.conf
MOD_DIR  = $(DESTDIR)/lib/modules/$(RELEASE)/$(INSTALL_MOD_DIR)
PLACES   = common $(wildcard pf_*)
UNITS    = packetflow.service packetflow-group.service
RUN      = tests/experiments/run
SOURCES  = Kbuild Makefile VERSION LICENSE dkms.conf tools/module-types tools/packetflow-xdp common $(wildcard pf_*)

all: ## build the modules for the running kernel (or KVER=, or KDIR=)
	$(KBUILD) modules
	-@tools/module-types $(KDIR) $(RELEASE) pf_filter/pf_filter.ko pf_flow/pf_flow.ko

install: install-tools ## install the modules, tools, service and /etc/packetflow.conf (DESTDIR= for packaging)
	$(KBUILD) INSTALL_MOD_PATH=$(DESTDIR) INSTALL_MOD_DIR=$(INSTALL_MOD_DIR) \
		CONFIG_MODULE_SIG_ALL= modules_install
	$(if $(DESTDIR),,depmod $(RELEASE))

install-tools: ## install the tools, service and /etc/packetflow.conf alone
	install -D -m 755 -t $(SBIN_DIR) tools/packetflow tools/packetflow-group tools/packetflow-xdp \
		tools/packetflow-flow
	install -D -m 644 -t $(MAN_DIR) $(wildcard docs/man/*.8)
	install -D -m 644 -t $(DOC_DIR)/docs $(wildcard docs/*.md)
	install -D -m 644 -t $(DOC_DIR)/docs/decisions $(wildcard docs/decisions/*.md)
	install -D -m 644 -t $(DOC_DIR)/docs/performance $(wildcard docs/performance/*.md)
	install -D -m 644 -t $(DOC_DIR)/docs/pictures $(wildcard docs/pictures/*.svg)
	install -D -m 644 -t $(DOC_DIR) LICENSE $(wildcard README.md)
	[ -e $(ETC_FILE) ] || install -D -m 644 system/packetflow.conf $(ETC_FILE)
	mkdir -p $(UNIT_DIR)
	for unit in $(UNITS); do \
		sed 's,/usr/sbin/,$(PREFIX)/sbin/,;s,/usr/share/,$(PREFIX)/share/,' system/$$unit \
			> $(UNIT_DIR)/$$unit && chmod 644 $(UNIT_DIR)/$$unit || exit 1; \
	done

uninstall: ## remove what install put in place
	$(if $(DESTDIR),,[ ! -d /run/systemd/system ] || systemctl disable --now $(UNITS) || :)
	rm -f $(foreach place,$(PLACES),$(MOD_DIR)/$(place)/$(subst common,pf_common,$(place)).ko*)
	rmdir $(addprefix $(MOD_DIR)/,$(PLACES)) $(MOD_DIR) 2>/dev/null || :
	rm -rf $(DOC_DIR)
	$(if $(DESTDIR),,[ ! -x $(SBIN_DIR)/packetflow-xdp ] || $(SBIN_DIR)/packetflow-xdp detach || :)
	rm -f $(addprefix $(SBIN_DIR)/,packetflow packetflow-group packetflow-xdp packetflow-flow)
	rm -f $(addprefix $(UNIT_DIR)/,$(UNITS))
	rm -f $(addprefix $(MAN_DIR)/,packetflow.8 packetflow-group.8)
	cmp -s system/packetflow.conf $(ETC_FILE) && rm $(ETC_FILE) || \
		[ ! -e $(ETC_FILE) ] || echo "$(ETC_FILE) was changed, and stays"
	$(if $(DESTDIR),,depmod $(RELEASE))

sign: ## sign the built modules for Secure Boot (SIGN_KEY=, SIGN_CERT=)
	@[ -r $(SIGN_KEY) ] && [ -r $(SIGN_CERT) ] || { echo "sign: no key $(SIGN_KEY) and" \
		"certificate $(SIGN_CERT): run \"dkms generate_mok\", or name yours by SIGN_KEY=" \
		"and SIGN_CERT=" >&2; exit 1; }
	@[ -n "$(wildcard */pf_*.ko)" ] || { echo "sign: nothing is built: run make first" >&2; exit 1; }
	for module in $(wildcard */pf_*.ko); do \
		$(KDIR)/scripts/sign-file sha256 $(SIGN_KEY) $(SIGN_CERT) $$module || exit 1; \
	done

dkms-install: dkms-remove ## have DKMS build and install the modules, now and for each kernel to come
	mkdir -p $(DKMS_DIR)
	tar -c --exclude-from=.gitignore $(SOURCES) | tar -x -C $(DKMS_DIR)
	$(if $(DESTDIR),,dkms install packetflow/$(VERSION) -k $(KVER))

dkms-remove: ## take the modules out of DKMS, whichever version it has
	$(if $(DESTDIR),,for known in $$(dkms status packetflow | sed -n 's,^packetflow/\([^:, ]*\).*,\1,p' | \
		sort -u); do \
		dkms remove packetflow/$$known --all && rm -rf /usr/src/packetflow-$$known || exit 1; \
	done)
	rm -rf $(DKMS_DIR)

deb: setup ## make Debian packages, into build/deb
	tools/in-root tools/deb

rpm: ## make RPM packages with this machine's rpmbuild, into build/rpm
	rm -rf build/rpm
	$(RPMBUILD) -bb --build-in-place --define "_topdir $(CURDIR)/build/rpm" rpm/packetflow.spec

test-packages: deb ## try the packages in clean roots of Debian bookworm and trixie
	tools/package-test

setup: ## make the root with compilers and QEMU that all below run in
	tools/setup

modules: setup ## build the modules for test kernels, which are installed if need be (KERNELS=)
	tools/kernel $(KERNELS)
	tools/modules "$(KERNELS)"

demo: BEGIN := $(shell date +%s)
demo: ## show what the modules do, as table and picture, in 6 to 8 minutes (KERNEL=, TOOL=iperf3)
	@echo "demo: takes about 8 minutes the first time, and 6 after that"
	@tools/setup
	@tools/kernel $(or $(KERNEL),6.12)
	@tools/modules $(or $(KERNEL),6.12) -s
	@tests/experiments/demo --kernel $(or $(KERNEL),6.12) --tool $(TOOL)
	@echo "demo: done in $$(($$(date +%s) - $(BEGIN))) s, all told"

test: modules ## run the quick set of tests, in 25 to 40 minutes (KERNELS= for other kernels or one, PYTEST= for its options)
	@echo "test: 25 to 40 minutes on two CPUs without KVM; make test-full takes hours"
	tests/quick "$(KERNELS)" $(PYTEST)

test-full: modules ## run all tests, in some hours (KERNELS=, PYTEST=)
	tests/run --kernel "$(KERNELS)" --packets 50000 --frames 250000 $(PYTEST)

test-all: setup ## run all tests on all kernels that Debian's archive has, in a day or so
	kernels=$$(tools/kernel --list) && $(MAKE) test-full KERNELS="$$kernels"

test-release: modules ## run them as for a release: 10 million packets, 200 cycles, 30 minutes of all at once (KERNELS=)
	tests/run --kernel "$(KERNELS)" --packets 10000000 --frames 10000000 --inputs 100000 \
		--cycles 200 --soak 30 $(PYTEST)

test-debug: DEBUG := $(or $(KERNEL),debug debug-6.12 kcsan)
test-debug: setup ## run the behaviour tests on kernels that catch mistakes, in a night for each (KERNEL=debug, debug-6.12, kcsan)
	tools/debug-kernel $(DEBUG)
	tools/modules "$(DEBUG)"
	tests/run --kernel "$(DEBUG)" --timeout 1800 $(PYTEST)

test-kernel: KERNELS := $(or $(KERNEL),6.12 7.x)
test-kernel: setup ## run the kernel's own tests of network and netfilter, without the modules and with them, in some hours (KERNEL=, TESTS=)
	tools/kernel $(KERNELS)
	tools/modules "$(KERNELS)"
	tools/kernel-tests $(KERNELS)
	tests/selftests/run --kernel "$(KERNELS)" $(TESTS)

mutate: setup ## break the modules in many ways and see the tests notice (KERNEL=)
	tools/kernel $(or $(KERNEL),6.1)
	tools/in-root tests/mutate --kernel $(or $(KERNEL),6.1)

bench: modules ## measure all experiments, into build/results/index.html (EXPERIMENTS=, REPEAT=, KERNEL=)
	$(RUN) bench --kernel $(or $(KERNEL),6.12) --repeat $(REPEAT) $(EXPERIMENTS)

cost: modules ## count instructions a packet (KERNEL=)
	$(RUN) cost --kernel $(or $(KERNEL),6.1)

lint check: setup ## check the sources: warnings, sparse, checkpatch, ruff, mypy, shellcheck
	tools/kernel all
	tools/checkers
	tools/lint

clean: ## remove everything built here (the root stays)
	$(if $(wildcard $(KDIR)),$(KBUILD) clean)
	rm -rf build

help: ## this list
	@echo "PacketFlow $(VERSION): targets"
	@sed -n 's/^\([a-z][a-z -]*\):[^#=]*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 19
	@echo "variables"
	@sed -n '/^## /{N;s/^## \(.*\)\n\([A-Z_]*\).*/  \2\t\1/p}' $(MAKEFILE_LIST) | expand -t 19

.PHONY: all install install-tools uninstall sign dkms-install dkms-remove deb rpm test-packages setup modules demo \
	test test-full test-all test-release test-debug test-kernel mutate bench cost lint check clean help
