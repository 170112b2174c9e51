//! The driver that runs operations on a Linux kernel through io_uring.
