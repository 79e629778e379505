//! The `pannier` command.

fn main() {}
