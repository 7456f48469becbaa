//! What the client sets, and as whom its statements run.

pub(super) mod current_user;
pub(super) mod defaults;
pub(super) mod effects;
pub(super) mod outdated;
pub(super) mod set_config;
pub(super) mod setting;
