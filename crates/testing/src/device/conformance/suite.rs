//! Expectations of a device under the suite.

base::with_defaults! {
    /// Expectations of a device.
    #[derive(Clone, Copy, Debug)]
    pub struct Suite {
        /// Fixes the random workload. Printed when a check fails.
        pub seed: u64 = 1,
        /// Requests of the random workload.
        pub requests: u32 = 2_000,
        /// True for a new device: every block reads as zeroes.
        pub fresh: bool = true,
        /// True for a device that keeps what is written; one that does not reads as zeroes.
        pub keeps: bool = true,
        /// True for a device that knows Compare and Verify, which a remote namespace may not.
        pub compares: bool = true,
        /// True for a device of which a read finds each block as one write has left it, also beside
        /// writes: neither one in memory that several threads serve, nor one behind a page cache.
        pub atomic: bool = false,
    }
}
