//! What clients see while partitions are held, and after they have changed their owner. The map is changed by hand here, and rows are
//! carried by hand.

mod by_hand;
mod gate;
mod hold;
mod owners;
mod reached;
