# What a person runs. `make` alone lists it.

CARGO ?= cargo
# Where cargo puts the demo's programs, also where its environment names another directory.
BINARIES = $(or $(CARGO_TARGET_DIR),target)/demo
DEMO_ARGUMENTS = $(if $(PORT),--port $(PORT)) $(if $(SHARDS),--shards $(SHARDS)) $(if $(DETACH),--detach)
# Seconds that each fuzz target gets.
FUZZ_SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup build demo demo-move demo-stop test test-only lint bench soak fuzz

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

setup: ## installs what is missing: PostgreSQL's programs, a C compiler, libclang, rustfmt and clippy
	@sh scripts/setup.sh

build: setup ## release binaries, in target/release or CARGO_TARGET_DIR; takes some ten minutes
	$(CARGO) build --release --locked --bins

demo: setup ## a local cluster with the book catalogue (DETACH=1, PORT=6432, SHARDS=3)
	@echo "building shardgate and shard-rebalance (about three minutes the first time, on two cores)"
	$(CARGO) build --profile demo --locked --bins
	@$(BINARIES)/shardgate demo $(DEMO_ARGUMENTS)

demo-move: setup ## partitions move under pgbench, and what the clients saw (MOVE_SECONDS=40 MOVE_RATE=500 MOVE_CLIENTS=8)
	$(CARGO) build --profile demo --locked --bins
	@sh scripts/demo-move.sh $(BINARIES)

demo-stop: ## ends what `make demo DETACH=1` started
	@if [ -x $(BINARIES)/shardgate ]; then $(BINARIES)/shardgate demo stop; else echo "no demo was built here"; fi

test: setup lint test-only ## formatting, lints, documentation, every test (PG=18: with PostgreSQL 18; 16 and 17 too)

# The tests' own closing lines come last. PG=16, 17 or 18: with another PostgreSQL than the system's.
test-only:
	$(CARGO) test --locked --doc --quiet
	@$(if $(PG),programs=$$(sh scripts/postgres.sh $(PG)) || exit 1; export PATH="$$programs:$$PATH"; postgres --version;) \
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
	    echo "$(CARGO) nextest run"; $(CARGO) nextest run --locked --no-fail-fast; \
	else \
	    echo "$(CARGO) test"; $(CARGO) test --locked --no-fail-fast --lib --bins --tests; \
	fi

lint: ## formatting, clippy and rustdoc, warnings as errors; cargo-deny where installed
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --quiet
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	    echo "$(CARGO) deny check"; $(CARGO) deny --offline check bans licenses sources; \
	fi

bench: setup ## pgbench: direct, PgBouncer where installed, the proxy; TPC-H over shards; moves; as tables (BENCH_SECONDS=6 BENCH_ROUNDS=3 …)
	$(CARGO) bench --locked --bench compare
	$(CARGO) bench --locked --bench queries
	$(CARGO) bench --locked --bench moves

soak: fuzz ## each fuzz target (FUZZ_SECONDS=60), then the tests at many times their volume
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
	    SHARDGATE_SOAK=1 $(CARGO) nextest run --cargo-profile soak --locked --no-fail-fast --profile soak; \
	else \
	    SHARDGATE_SOAK=1 $(CARGO) test --profile soak --locked --no-fail-fast --lib --bins --tests; \
	fi

# Needs a nightly toolchain and cargo-fuzz.
fuzz: setup ## each fuzz target for FUZZ_SECONDS
	@for target in $$($(CARGO) +nightly fuzz list); do \
	    echo "$(CARGO) fuzz run $$target"; \
	    $(CARGO) +nightly fuzz run "$$target" -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done
