# What a person runs. `make` alone lists it.

CARGO ?= cargo
# Where cargo puts the demo's programs, also where its environment names another directory.
BINARIES = $(or $(CARGO_TARGET_DIR),target)/demo
DEMO_ARGUMENTS = $(if $(PORT),--port $(PORT)) $(if $(SHARDS),--shards $(SHARDS)) $(if $(DETACH),--detach)
# What is run with other versions of PostgreSQL than the system's, by the names of the tests. docs/upgrading.md has them as a table.
TESTS_OF_18 = sessions::bodies sessions::copies sessions::cursors sessions::ddl:: sessions::held sessions::mixed \
    sessions::own_definitions sessions::parity sessions::prepared sessions::schema sessions::sealed:: sessions::temporary \
    transactions::atomic transactions::copies transactions::dumps transactions::one_time declare::check declare::keys \
    declare::reading declare::shards online_moves::aborts online_moves::partitioned online_moves::rollbacks
TESTS_OF_17 = servers:: relations:: declare::shards declare::reading:: sessions::bodies sessions::ddl:: transactions::dumps \
    online_moves::aborts
# Half of the tests wait most of their time, moves above all: for replication, for leases, for what was killed to come back.
NEXTEST = $(CARGO) nextest run --locked --no-fail-fast --test-threads $$(( $$(getconf _NPROCESSORS_ONLN) * 2 ))
# The directories of PostgreSQL 18's programs, beside which the tests of mixed clusters start the system's.
FIND_18 = SHARDGATE_TEST_PG18=$${SHARDGATE_TEST_PG18:-$$(sh scripts/postgres.sh 18)} || exit 1; export SHARDGATE_TEST_PG18
# The programs of $$major, to put before PATH.
FIND_MAJOR = if [ "$$major" = 18 ]; then programs=$$SHARDGATE_TEST_PG18; else programs=$$(sh scripts/postgres.sh "$$major") || exit 1; fi
# Seconds that each fuzz target gets.
FUZZ_SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup build demo demo-move demo-stop test test-setup test-only test-majors lint bench soak fuzz

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

test: test-setup lint test-only $(if $(PG),,test-majors) ## formatting, lints, documentation, every test, and some with PostgreSQL 17 and 18 (PG=18: every test with 18; 16 and 17 too)

# What fetches other versions of PostgreSQL, too.
test-setup:
	@sh scripts/setup.sh tests

# The tests' own closing lines come last. PG=16, 17 or 18: with another PostgreSQL than the system's.
test-only:
	$(CARGO) test --locked --doc --quiet
	@$(FIND_18); $(if $(PG),major=$(PG); $(FIND_MAJOR); export PATH="$$programs:$$PATH"; postgres --version;) \
	if $(CARGO) nextest --version >/dev/null 2>&1; then \
	    echo "$(CARGO) nextest run"; $(NEXTEST); \
	else \
	    echo "$(CARGO) test"; $(CARGO) test --locked --no-fail-fast --lib --bins --tests; \
	fi

# With PostgreSQL 17 and 18, what depends on the version most.
test-majors:
	@$(FIND_18); failed=''; ran=$$(postgres --version 2>/dev/null || echo the system\'s); \
	for major in 18 17; do \
	    $(FIND_MAJOR); \
	    case $$major in 18) tests='$(TESTS_OF_18)' ;; *) tests='$(TESTS_OF_17)' ;; esac; \
	    version=$$(PATH="$$programs:$$PATH" postgres --version); ran="$$ran; $$version: $$tests"; echo "$$version"; \
	    if $(CARGO) nextest --version >/dev/null 2>&1; then \
	        PATH="$$programs:$$PATH" $(NEXTEST) --test it -- $$tests || failed="$$failed $$major"; \
	    else \
	        PATH="$$programs:$$PATH" $(CARGO) test --locked --no-fail-fast --test it -- $$tests || failed="$$failed $$major"; \
	    fi; \
	done; \
	echo "every test: $$ran"; [ -z "$$failed" ] || { echo "failed with PostgreSQL$$failed" >&2; exit 1; }

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
