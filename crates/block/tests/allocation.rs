//! A cache hit does not allocate, for reads and writes.

#[cfg(test)]
mod tests {
    use base::units::Lba;
    use reactor::uring::{Options, UringDriver};
    use reactor::{Context, Driver, IoSlice};
    use std::sync::Arc;
    use switchyard_block::device::Ram;
    use switchyard_block::{Cache, CacheOptions, Channel, Device, Operation, Request, Submit};

    const PAGE: usize = 4096;

    /// Executes one request for a page, which is cached afterwards.
    fn request(
        channel: &mut dyn Channel,
        driver: &mut UringDriver,
        operation: Operation,
        page: u64,
        data: IoSlice,
    ) -> IoSlice {
        let request = Request {
            tag: page,
            operation,
            lba: Lba(page),
            blocks: 1,
            data: Some(data),
        };
        let now = driver.now();
        let mut cx = Context { now, driver };
        let submit = channel.submit(request, &mut cx);
        channel.kick(&mut cx);
        let completion = match submit {
            Submit::Done(completion) => completion,
            Submit::Queued => channel.reap().expect("memory is done at once"),
            Submit::Busy(_) => panic!("there is room for one"),
        };
        assert_eq!(completion.result, Ok(()));
        completion.data.expect("the data comes back")
    }

    #[test]
    fn a_hit_allocates_nothing() {
        let ram = Arc::new(Ram::new(1 << 20, 4096).expect("memory"));
        let options = CacheOptions {
            dirty_background: 200,
            dirty_max: 200,
            ..CacheOptions::new(256)
        };
        let cache = Cache::new(ram, options).expect("legal options");
        let mut driver = UringDriver::new(&Options::default()).expect("io_uring works here");
        let mut channel = cache.open(&mut driver).expect("it opens");
        let buffer = driver.buffers().take(PAGE).expect("a buffer");
        let mut data = Some(IoSlice::from_buffer(buffer, PAGE));
        let mut round = || {
            for page in 0..256_u64 {
                let writes = page % 3 == 0;
                let operation = if writes {
                    Operation::Write { durable: false }
                } else {
                    Operation::Read
                };
                let taken = data.take().expect("one request at a time");
                data = Some(request(&mut *channel, &mut driver, operation, page, taken));
            }
        };
        // The first round fills the cache.
        round();
        let before = cache.snapshot();
        let counted = allocation_counter::measure(|| (0..20).for_each(|_| round()));
        let after = cache.snapshot();
        assert_eq!(after.misses, before.misses, "all are hits");
        assert_eq!(counted.count_total, 0);
    }
}
