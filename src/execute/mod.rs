//! Runs a plan on backends.
