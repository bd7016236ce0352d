# SPDX-License-Identifier: Apache-2.0
# What one types; the build itself is Meson's.

BUILD ?= build
PREFIX ?= /usr/local
PACK := $(or $(QUERN_GPU_PACK),.gpu)
# Programs for a GPU: built here, or those of bench/gpu/pack on a machine that cannot build.
PLUGIN = $(BUILD)/src/inference/gpu/cuda/libquern-cuda.so
HAS_PLUGIN = ninja -C $(BUILD) -t query cuda-plugin >/dev/null 2>&1
GPU_PROGRAMS = $(if $(wildcard $(BUILD)/build.ninja $(PACK)/bin/quern),,$(BUILD)/build.ninja)

all: $(BUILD)/build.ninja ## build the release binary, build/src/quern
	@ninja -C $(BUILD) src/quern

$(BUILD)/build.ninja:
	@tools/bootstrap build
	@meson setup $(BUILD) >/dev/null

demo: ## 100 real candidate evaluations through the real API on a real model
	@command -v python3 >/dev/null || tools/bootstrap build
	@python3 tools/demo --build $(BUILD)

test: ## every test, an eighth of the drawn cases and deaths; ends with "N passed, N failed"
	@tools/bootstrap build
	@QUERN_SHARE=$${QUERN_SHARE:-0.125} QUERN_KILLS=$${QUERN_KILLS:-0.125} tools/test

cuda: $(BUILD)/build.ninja ## the CUDA plugin, libquern-cuda.so; says so without nvcc
# nvcc may have come since the build was set up.
	@$(HAS_PLUGIN) || meson setup --reconfigure $(BUILD) >/dev/null
	@$(HAS_PLUGIN) || { echo "no nvcc: no CUDA plugin"; exit; }; ninja -C $(BUILD) cuda-plugin

test-gpu: $(GPU_PROGRAMS) ## the CUDA plugin and its kernels on this GPU; skips without one
	@QUERN_GPU_PACK=$(PACK) tools/test-gpu $(BUILD)

test-peers: ## against real llama-server, vLLM, Label Studio, Ceph; skips what is not installed
	@tools/bootstrap build
	@tools/test peers

test-clients: ## programs of others, unmodified, against quern; minutes, and the network once
	@tools/bootstrap build
	@tools/test clients

test-masks: $(BUILD)/build.ninja ## masks against llguidance's; minutes, and the network once
	@ninja -C $(BUILD) tests/masks/masks >/dev/null
	@BUILD=$(BUILD) tools/differential-masks

test-packages: ## install, packages, service on a bare Debian; minutes, root, the network
	@tools/bootstrap packages
	@tools/test packages

check: ## format, layers, tidy, gcc and clang without a warning, clang-tidy of what changed
	@tools/bootstrap all
	@tools/check

nightly: ## all that .ci/run leaves out: every source, all deaths, sanitizers, fuzz; hours
	@tools/bootstrap all
	@tools/nightly

release-check: $(BUILD)/build.ninja ## the release programme, resumable; days, or SCALE=0.01
	@tools/bootstrap all
	@SCALE=$(SCALE) MINUTES=$(MINUTES) PARTS=$(PARTS) BUILD=$(BUILD) tools/release-check

asan: ## the unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/bootstrap build
	@tools/sanitize address,undefined

tsan: ## the tests with threads under ThreadSanitizer
	@tools/bootstrap build
	@tools/sanitize thread

fuzz: ## each fuzz target for FUZZ_SECONDS (60)
	@tools/bootstrap all
	@tools/fuzz

bench: all ## kernels against their peak, the engine, the server alone
	@tools/bench

bench-gpu: $(GPU_PROGRAMS) ## quern against vLLM on this machine's GPU; skips without one
	@BUILD=$(BUILD) QUERN_GPU_PACK=$(PACK) tools/bench-gpu

install: all ## into PREFIX (/usr/local), under DESTDIR; the plugin too, once `make cuda` has built it
	@meson configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD) src/quern packaging $(if $(wildcard $(PLUGIN)),cuda-plugin) >/dev/null
	@DESTDIR=$(if $(DESTDIR),$(abspath $(DESTDIR))) meson install -C $(BUILD) --no-rebuild

deb: all ## Debian packages into build/packages: quern, and quern-cuda once `make cuda` has built the plugin
	@tools/deb $(BUILD)

wheel: all ## Python wheels into build/packages: quern, and quern_cuda once `make cuda` has built the plugin
	@tools/bootstrap packages
	@tools/wheel $(BUILD)

uninstall: ## takes away what `make install` with the same PREFIX and DESTDIR put there
	@tools/uninstall $(BUILD) $(PREFIX) $(if $(DESTDIR),$(abspath $(DESTDIR)))

clean:
	@rm -rf build build-*

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

.PHONY: all cuda demo test test-gpu test-peers test-clients test-masks test-packages check nightly
.PHONY: release-check asan tsan fuzz bench bench-gpu install deb wheel uninstall clean help
