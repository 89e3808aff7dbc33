//! The command line of armsnap.

fn main() {}
