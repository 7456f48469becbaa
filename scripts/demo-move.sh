#!/bin/sh
# Partitions move under pgbench: the demo's cluster, a table with 100,000 rows, 500 transactions a second, and what the clients saw.
#
# Called by `make demo-move` with the directory of the programs. MOVE_SECONDS, MOVE_RATE and MOVE_CLIENTS change the load.
set -eu

binaries=$1
port=${PORT:-6432}
seconds=${MOVE_SECONDS:-40}
rate=${MOVE_RATE:-500}
clients=${MOVE_CLIENTS:-8}
rows=100000

for program in psql pgbench; do
    command -v "$program" >/dev/null || { echo "demo-move: $program is missing: install PostgreSQL's client programs and contrib" >&2; exit 1; }
done

"$binaries/shardgate" demo --detach --port "$port"
map=$(sed -n 's/^url = "\(.*\)"/\1/p' .shardgate/shardgate.toml | head -n 1)
work=$(mktemp -d)
trap 'kill "$load" 2>/dev/null || true; rm -rf "$work"' EXIT
load=

sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$port" -U postgres -d app "$@"; }

sql >/dev/null <<SQL
SET client_min_messages = warning;
DROP TABLE IF EXISTS moving_accounts;
CREATE TABLE moving_accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, filler text NOT NULL);
SELECT shardgate.distribute_table('moving_accounts', 'id', partitions => 12);
INSERT INTO moving_accounts SELECT g, 0, repeat('x', 100) FROM generate_series(1, $rows) g;
SQL

cat >"$work/transaction.sql" <<SQL
\\set id random(1, $rows)
\\set other random(1, $rows)
UPDATE moving_accounts SET balance = balance + 1 WHERE id = :id;
SELECT balance FROM moving_accounts WHERE id = :other;
SQL

echo "pgbench: $clients clients, $rate transactions a second (an UPDATE and a SELECT by key), $seconds s"
(cd "$work" && pgbench -n -M prepared -c "$clients" -j 1 -R "$rate" -T "$seconds" -f transaction.sql -l --log-prefix=transactions \
    -h 127.0.0.1 -p "$port" -U postgres app >pgbench.txt 2>&1) &
load=$!

group="SELECT colocation_group FROM shardgate.tables WHERE table_name = 'moving_accounts'"
moves=0
while kill -0 "$load" 2>/dev/null; do
    # From the fullest shard to the next one, two partitions at a time: those that have not moved for longest.
    source=$(sql -c "SELECT shard FROM shardgate.partitions WHERE colocation_group = ($group) GROUP BY shard ORDER BY count(*) DESC, shard LIMIT 1")
    target=$(sql -c "SELECT name FROM shardgate.shards ORDER BY name <= '$source', name LIMIT 1")
    chosen=$(sql -c "SELECT string_agg(partition_id::text, ',') FROM (SELECT partition_id FROM shardgate.partitions
                     WHERE colocation_group = ($group) AND shard = '$source' ORDER BY epoch, partition_id LIMIT 2) p")
    began=$(date +%s%N)
    if ! "$binaries/shard-rebalance" move --map "$map" --partition "$chosen" --to "$target" --finish --json >"$work/move.json" 2>"$work/move.err"; then
        cat "$work/move.err" >&2
        exit 1
    fi
    took=$((($(date +%s%N) - began) / 1000000))
    moves=$((moves + 1))
    pause=$(sed -n 's/.*"pause_ms": \([0-9]*\).*/\1/p' "$work/move.json")
    attempts=$(sed -n 's/.*"attempts": \([0-9]*\).*/\1/p' "$work/move.json")
    printf 'move %2d: partitions %-7s %s -> %s in %5d ms, held for %4s ms (cut-over %s)\n' \
        "$moves" "$chosen" "$source" "$target" "$took" "${pause:-?}" "$attempts"
done
status=0
wait "$load" || status=$?
load=
grep -E "^(number of transactions|number of failed|latency|tps)" "$work/pgbench.txt" || true
[ "$status" = 0 ] || { cat "$work/pgbench.txt" >&2; echo "pgbench saw an error" >&2; exit 1; }
cat "$work"/transactions.* | awk '{ print $3 / 1000 }' | sort -n | awk '
    { latency[NR] = $1 }
    END { printf "what the clients saw: median %.1f ms, p99 %.1f ms, p99.9 %.1f ms, longest %.0f ms\n",
                 latency[int(NR * .5) + 1], latency[int(NR * .99) + 1], latency[int(NR * .999) + 1], latency[NR] }'
done=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$work/pgbench.txt")
found=$(sql -c "SELECT count(*) || ' rows, sum of balances ' || sum(balance) FROM moving_accounts")
echo "$moves moves; $done transactions were acknowledged; $found"
[ "$found" = "$rows rows, sum of balances $done" ] || { echo "the sums differ" >&2; exit 1; }
"$binaries/shard-rebalance" doctor --map "$map"
