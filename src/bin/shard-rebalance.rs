//! The operator's command line. It has no verbs yet: every call is a usage error.

use std::process::ExitCode;

fn main() -> ExitCode {
    eprintln!("shard-rebalance: this version has no verbs yet");
    ExitCode::from(2)
}
