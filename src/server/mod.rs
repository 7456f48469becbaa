//! Builds everything once, accepts, drains.

pub mod admin;
