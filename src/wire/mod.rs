//! Frames of the PostgreSQL protocol over bytes.
