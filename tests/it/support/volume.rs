//! How much a test does: enough to notice a fault in `make test`, far more in `make soak`.

/// The first number, or the second one under `make soak`.
pub fn volume(in_test: usize, in_soak: usize) -> usize {
    if std::env::var_os("SHARDGATE_SOAK").is_some_and(|value| !value.is_empty()) { in_soak } else { in_test }
}
