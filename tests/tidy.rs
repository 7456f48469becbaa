//! The structure of the sources, checked.
