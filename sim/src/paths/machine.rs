//! The costs of a machine for I/O paths.

use crate::model::Costs;
use crate::model::costs::for_bytes;

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Processors of the thesis' machine. `[Yu §6]`
const PROCESSORS: usize = 8;

/// Wake-up latency of a thread whose processor has slept for some microseconds, from the call until
/// the thread runs. The performance model's costs are of processors that slept for 0.7 ms, which
/// take four times as long: a hypervisor polls for a while before it gives a processor away. On the
/// machine of these costs a request of the measured figure `thesis-table6` takes 19.9 µs with three
/// such wake-ups, 14.1 µs with two, and 0.1 µs without.
const SHORT_WAKE_NS: u64 = 6_600;

/// A machine: its processors, and the cost of each step in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Processors.
    pub processors: usize,
    /// The application's part of a request.
    pub app_ns: u64,
    /// A system call.
    pub call_ns: u64,
    /// Copying a page between an application and the cache or a device's memory.
    pub copy_ns: u64,
    /// Making a request part of a command.
    pub submit_ns: u64,
    /// Processing the result of a request.
    pub complete_ns: u64,
    /// The lock of a queue, and the election of its runner.
    pub lock_ns: u64,
    /// The same if requests pass an I/O scheduler: with every path that plugs or dispatches.
    pub scheduler_ns: u64,
    /// Switching from one thread to another on a processor.
    pub switch_ns: u64,
    /// The waker's part of waking a thread on a sleeping processor.
    pub wake_call_ns: u64,
    /// Time from the end of the waker's part until that thread runs.
    pub wake_ns: u64,
    /// Time from the end of a command to the end of its interrupt.
    pub interrupt_ns: u64,
    /// Time for which a thread keeps a processor that other threads want.
    pub slice_ns: u64,
    /// True if the device takes commands while it executes one. A device with a single table and a
    /// single status register does not: its driver starts the next command when it has seen the end
    /// of the last. `[Yu §5.2]`
    pub device_queues: bool,
}

impl Machine {
    /// A machine with the measured costs of the performance model.
    ///
    /// Assumption: the waker and the woken thread have half of a wake-up each.
    #[must_use]
    pub const fn of(costs: &Costs) -> Self {
        let (core, stack) = (&costs.core, &costs.stack);
        Self {
            processors: PROCESSORS,
            app_ns: stack.app_request_ns,
            // An empty receive: a call that finds no work.
            call_ns: stack.turn_ns,
            copy_ns: for_bytes(PAGE_BYTES, costs.socket.receive_byte_ps),
            submit_ns: stack.submit_ns,
            complete_ns: stack.complete_ns,
            lock_ns: stack.hand_over_ns,
            scheduler_ns: stack.hand_over_ns,
            switch_ns: core.context_switch_ns,
            wake_call_ns: SHORT_WAKE_NS / 2,
            wake_ns: SHORT_WAKE_NS / 2,
            interrupt_ns: core.timer_ns,
            slice_ns: core.slice_ns,
            device_queues: true,
        }
    }

    /// The same machine with the costs of single requests on the thesis' machine, from its table of
    /// latencies: an interrupt takes 7 µs more than polling, the three switches of a read take 8
    /// µs, and a scheduler at least 1 µs; the 5 µs of the synchronous path are part of the device.
    /// `[Yu Table 6]`
    #[must_use]
    pub const fn of_thesis(costs: &Costs) -> Self {
        const SWITCH_NS: u64 = 8_000 / 3;
        Self {
            submit_ns: 0,
            complete_ns: 0,
            scheduler_ns: 1_000,
            switch_ns: SWITCH_NS,
            wake_call_ns: SWITCH_NS / 2,
            wake_ns: SWITCH_NS / 2,
            interrupt_ns: 7_000,
            device_queues: false,
            ..Self::of(costs)
        }
    }
}
