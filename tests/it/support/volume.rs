//! How much a test does: enough to notice a fault in `make test`, far more in `make soak`.

/// The first one, or the second one under `make soak`.
pub fn volume<T>(in_test: T, in_soak: T) -> T {
    if std::env::var_os("SHARDGATE_SOAK").is_some_and(|value| !value.is_empty()) { in_soak } else { in_test }
}
