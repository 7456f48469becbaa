//! Texts for the shards, made from the client's by byte offsets: constants, numbers, and instants put in, statements taken apart.

pub mod blanks;
pub mod chosen;
pub mod clock;
pub mod clock_literals;
pub mod drawing;
pub mod grouped_by_key;
pub mod joined_by_key;
pub mod moving;
pub mod returned;
pub mod staging;
pub mod transaction_time;
pub mod value_rows;
