//! Builds everything once, accepts, drains.
