//! HTTP for operators; the proxy's own loop is not part of the library yet.

pub mod admin;
