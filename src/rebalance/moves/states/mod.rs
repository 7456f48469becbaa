//! One file for each state in which there is something to do. Each can be begun again at any of its acts.

pub(super) mod aborting;
pub(super) mod catching_up;
pub(super) mod cleaning_up;
pub(super) mod copying;
pub(super) mod cutting_over;
pub(super) mod failed;
pub(super) mod planned;
pub(super) mod preparing;
pub(super) mod switched;
pub(super) mod verifying;
