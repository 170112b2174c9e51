//! Block storage over plain TCP, in user space, on a stock Linux kernel.
fn main() {}
