//! What pgbench is told to do.

/// One pgbench script and how to run it.
pub struct Workload {
    pub name: &'static str,
    pub script: &'static str,
    /// `--protocol`.
    pub protocol: &'static str,
    /// A new connection for each transaction.
    pub reconnects: bool,
}

pub fn all() -> [Workload; 6] {
    [
        Workload { name: "select by key, prepared", script: SELECT, protocol: "prepared", reconnects: false },
        Workload { name: "select by key, simple", script: SELECT, protocol: "simple", reconnects: false },
        Workload {
            name: "select by key with a function that sets nothing, prepared",
            script: PROVEN,
            protocol: "prepared",
            reconnects: false,
        },
        Workload { name: "select by key with a reset after it, prepared", script: RESET, protocol: "prepared", reconnects: false },
        Workload { name: "transaction by key, prepared", script: TRANSACTION, protocol: "prepared", reconnects: false },
        Workload { name: "connect, select, disconnect", script: SELECT, protocol: "simple", reconnects: true },
    ]
}

/// pgbench's own `select-only`.
const SELECT: &str = "\
\\set aid random(1, 100000 * :scale)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
";
/// A function whose body is read.
const PROVEN: &str = "\
\\set aid random(1, 100000 * :scale)
SELECT proven(abalance) FROM pgbench_accounts WHERE aid = :aid;
";
/// One that makes its text when it runs: the connection is reset before another session has it.
const RESET: &str = "\
\\set aid random(1, 100000 * :scale)
SELECT unproven(abalance) FROM pgbench_accounts WHERE aid = :aid;
";
const TRANSACTION: &str = "\
\\set aid random(1, 100000 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
COMMIT;
";
