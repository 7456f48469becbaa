//! Sequences of the whole cluster: numbers for the session's statements, and the changes of sequences.

pub(super) mod altered;
pub(super) mod numbered;
pub(super) mod numbers;
pub(super) mod restarts;
pub(super) mod sequence_calls;
pub(super) mod sequence_rights;
pub(super) mod set_sequence;
