//! An unused path costs nothing: its dispatcher sleeps. In a separate process, which has no other
//! dispatcher of the same name.

#[cfg(test)]
mod tests {
    use base::Time;
    use base::units::Lba;
    use reactor::uring::{Options, UringDriver};
    use reactor::{Context, Driver, IoSlice, Wait};
    use std::sync::Arc;
    use std::time::Duration;
    use switch::{Path, PathRules};
    use switchyard_block::device::Flash;
    use switchyard_block::{Device, Operation, PathDevice, Request, Submit};

    const PAGE: usize = 4096;

    /// Consecutive windows of 30 ms in which an idle dispatcher uses no processor.
    const WINDOWS: u32 = 10;

    /// Executes one write, and closes the channel.
    fn write_once(device: &PathDevice) {
        let mut driver = UringDriver::new(&Options::default()).expect("a ring");
        let mut channel = device.open(&mut driver).expect("it opens");
        let buffer = driver.buffers().take(PAGE).expect("a buffer");
        let request = Request {
            tag: 1,
            operation: Operation::Write { durable: false },
            lba: Lba(1),
            blocks: 1,
            data: Some(IoSlice::from_buffer(buffer, PAGE)),
        };
        let mut done = match turn(&mut driver, |cx| channel.submit(request, cx)) {
            Submit::Done(completion) => Some(completion),
            Submit::Queued => None,
            Submit::Busy(_) => panic!("nothing is under way"),
        };
        while done.is_none() {
            turn(&mut driver, |cx| {
                channel.kick(cx);
                channel.tick(cx);
            });
            done = channel.reap();
        }
        assert_eq!(done.map(|done| done.result), Some(Ok(())));
        turn(&mut driver, |cx| channel.close(cx));
        while !channel.closed() {
            turn(&mut driver, |cx| channel.tick(cx));
        }
    }

    fn turn<T>(driver: &mut UringDriver, work: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let mut completions = Vec::new();
        driver
            .reap(Wait::No, &mut completions)
            .expect("the ring works");
        let now = driver.now();
        work(&mut Context { now, driver })
    }

    /// Processor time of this process' threads with a name, in nanoseconds.
    fn cpu_of(name: &str) -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").expect("this process");
        let of_task = |task: std::io::Result<std::fs::DirEntry>| {
            let path = task.ok()?.path();
            let comm = std::fs::read_to_string(path.join("comm")).ok()?;
            let stat = std::fs::read_to_string(path.join("schedstat")).ok()?;
            let ran = stat.split(' ').next()?.parse::<u64>().ok()?;
            (comm.trim() == name).then_some(ran)
        };
        tasks.filter_map(of_task).sum()
    }

    #[test]
    fn an_idle_dispatcher_sleeps() {
        for path in Path::ALL {
            let profile = "dram-ssd".parse().expect("a profile");
            let flash = Flash::new(profile, 1 << 20, 4096).expect("memory");
            let device = PathDevice::start(Arc::new(flash), path, PathRules::default());
            let device = device.expect("the path starts");
            if !device.needs_dispatcher() {
                continue;
            }
            // An open channel that submits nothing needs no turn.
            let mut driver = UringDriver::new(&Options::default()).expect("a ring");
            let idle = device.open(&mut driver).expect("it opens");
            write_once(&device);
            assert_eq!(idle.deadline(), Time::NEVER, "{path}");
            let name = format!("path/{path}");
            // It becomes idle at some time, however slow the machine is, and stays idle.
            let (mut before, mut quiet) = (cpu_of(&name), 0);
            let rests = (0..200).any(|_| {
                std::thread::sleep(Duration::from_millis(30));
                let now = cpu_of(&name);
                quiet = if now == before { quiet + 1 } else { 0 };
                before = now;
                quiet == WINDOWS
            });
            assert!(rests, "{path}: it never rests");
        }
    }
}
