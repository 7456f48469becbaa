//! What one client connection owns.
