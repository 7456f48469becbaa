//! From an analysis and its target to a plan. Pure.
