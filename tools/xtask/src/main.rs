//! Everyday commands.

fn main() {}
