//! Properties of a device that the suite expects.

base::with_defaults! {
    /// Expected properties of a device.
    #[derive(Clone, Copy, Debug)]
    pub struct Suite {
        /// Seed of the random workload. Printed when a check fails.
        pub seed: u64 = 1,
        /// Number of requests of the random workload.
        pub requests: u32 = 2_000,
        /// True for a new device: every block reads as zeroes.
        pub fresh: bool = true,
        /// True for a device that stores writes; otherwise it reads as zeroes.
        pub keeps: bool = true,
        /// True for a device that supports Compare and Verify; a remote namespace may not.
        pub compares: bool = true,
        /// True for a device whose reads return each block as left by a single write, even during
        /// writes. False for a device in memory that several threads serve, and behind a page
        /// cache.
        pub atomic: bool = false,
    }
}
