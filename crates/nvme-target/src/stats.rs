//! Counters: plain numbers on the core that counts, published as atomics now and then.
//!
//! Each core writes only its own copy, so counting costs an addition and publishing a few stores;
//! a reader adds up the cores.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $name:ident / $shared:ident { $( $(#[$doc:meta])* $field:ident, )+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $( $(#[$doc])* pub $field: u64, )+ }

        impl $name {
            /// Adds another core's numbers.
            pub fn add(&mut self, other: &Self) {
                $( self.$field += other.$field; )+
            }
        }

        /// One core's published copy, on cache lines of its own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct $shared { $( $field: AtomicU64, )+ }

        impl $shared {
            pub(crate) fn publish(&self, counters: &$name) {
                $( self.$field.store(counters.$field, Ordering::Relaxed); )+
            }

            pub(crate) fn load(&self) -> $name {
                $name { $( $field: self.$field.load(Ordering::Relaxed), )+ }
            }
        }
    };
}

counters! {
    /// Counters of a namespace.
    pub struct NamespaceStats / SharedNamespaceStats {
        /// Read commands that were done.
        reads,
        /// Bytes that they read.
        read_bytes,
        /// Write commands that were done.
        writes,
        /// Bytes that they wrote.
        written_bytes,
        /// Flush commands of this namespace alone that were done.
        flushes,
        /// Other commands that were done: Write Zeroes, Dataset Management, Compare, Verify.
        others,
        /// Commands that ended with an error.
        errors,
    }
}

counters! {
    /// Counters of a core.
    pub struct CoreStats / SharedCoreStats {
        /// Connections open now.
        connections,
        /// I/O queues open now that their hosts connected with class `Latency`.
        latency_queues,
        /// I/O queues open now that their hosts connected with class `Throughput`.
        throughput_queues,
        /// Commands that queues have memory for, as of the last time that they gave some back.
        command_places,
        /// Connections taken over since the start.
        accepted,
        /// Connections refused because of a limit.
        refused,
        /// Of these, those closed because too many had not got through Connect.
        fresh_closed,
        /// Those of addresses that have as many as one may.
        refused_per_address,
        /// Connects refused because their host, its address, its kind or all together have as many
        /// controllers as they may.
        controllers_refused,
        /// Of these, those of hosts that have as many as one may.
        controllers_refused_per_host,
        /// Those of addresses that do.
        controllers_refused_per_address,
        /// Those of tenants that do.
        controllers_refused_per_tenant,
        /// Those to the discovery service, which has as many controllers as it may.
        controllers_refused_discovery,
        /// Fabrics and admin commands.
        admin_commands,
        /// I/O commands.
        io_commands,
        /// R2Ts sent.
        r2ts,
        /// Termination requests sent.
        terminations_sent,
        /// Termination requests received.
        terminations_received,
        /// Payloads with a digest that did not match.
        data_digest_errors,
        /// Commands that waited for a buffer.
        buffer_waits,
        /// Times that a command waited because its connection or host held its share of buffers.
        share_waits,
        /// Of these, those where the connection did.
        connection_share_waits,
        /// Those where the host did.
        host_share_waits,
        /// Those where the host's tenant did.
        tenant_share_waits,
        /// Those where all queues of class `Throughput` did.
        throughput_share_waits,
        /// Commands refused because as much input was put aside as may be.
        stash_refusals,
        /// Times that an answer waited because no send list was left for its connection.
        list_waits,
        /// Connections closed because Connect took too long.
        connect_timeouts,
        /// Connections closed because a PDU was not completed in time.
        pdu_timeouts,
        /// Connections closed because neither data that we asked for nor a send made progress.
        stall_timeouts,
        /// Connections closed because a command's data was not complete in time.
        transfer_timeouts,
        /// Connections closed because a change waited for a command's data.
        pause_timeouts,
        /// Barriers that failed because they took too long, or held too much.
        barriers_given_up,
        /// Of these, those that held too much.
        barriers_overflowed,
        /// Barriers that waited because as many others were in force as may be.
        barriers_put_off,
        /// Requests that the device had no room for at first.
        device_waits,
        /// Commands that waited for a paused namespace.
        pause_waits,
        /// Commands that waited for a barrier.
        barrier_waits,
        /// Answers that waited because the host did not read.
        output_waits,
        /// Controllers ended because their host fell silent.
        keep_alive_expirations,
        /// Bytes of the core's payload buffers.
        buffer_bytes,
        /// Of these, bytes of buffers in use now.
        buffer_bytes_used,
        /// Send lists in use now.
        send_lists_used,
        /// Bytes of input put aside now.
        stashed_bytes,
        /// Commands that got a slot, or passed their gates again after a wait.
        commands_dispatched,
        /// Commands that waited for in-capsule data.
        commands_arriving,
        /// Commands that waited for data by R2T.
        commands_transferring,
        /// Commands that waited in a barrier's order.
        commands_held,
        /// Commands that waited for a namespace to open.
        commands_paused,
        /// Commands that waited for tokens.
        commands_unpaid,
        /// Commands that waited for a buffer or a share of them.
        commands_unbuffered,
        /// Commands that went to a device or a controller.
        commands_executing,
        /// Commands with an answer that waited for space to send.
        commands_unsent,
        /// Connections that were initialized (ICReq).
        connections_initialized,
        /// Connections that became queue pairs, or moved here.
        connections_live,
        /// Connections that drained.
        connections_drained,
        /// Connections that were terminated with a request.
        connections_terminated,
        /// Connections with a socket that the core closed or handed over.
        connections_closing,
        /// Connections without a socket any more.
        connections_closed,
        /// Nanoseconds in which the core had something to do.
        work_ns,
        /// Turns of the core's loop.
        turns,
        /// Times that the core slept in the kernel.
        sleeps,
        /// System calls that received something.
        receives,
        /// Bytes received.
        received_bytes,
        /// System calls that sent something.
        sends,
        /// Bytes sent.
        sent_bytes,
    }
}

counters! {
    /// Counters of a tenant on a device, and of its tokens, which are counted in thousandths.
    pub struct TenantStats / SharedTenantStats {
        /// Read commands that were done.
        reads,
        /// Bytes that they read.
        read_bytes,
        /// Write commands that were done.
        writes,
        /// Bytes that they wrote.
        written_bytes,
        /// Other commands that were done: Flush, Write Zeroes, Dataset Management, Compare, Verify.
        others,
        /// Commands that ended with an error.
        errors,
        /// Tokens of its own: generated for it, or its share of what was left.
        earned_milli,
        /// Tokens that its commands cost.
        spent_milli,
        /// Tokens that it did not need and gave back.
        given_milli,
        /// Tokens lent to it, as a latency-critical tenant, while no other tenant wanted them.
        taken_milli,
        /// Rounds in which it was stopped, as a latency-critical tenant, at the limit of its debt.
        limited_rounds,
        /// Commands that wait for tokens now.
        waiting,
        /// Connections that it has here now, one for each namespace that they can use.
        seats,
        /// Reads that were done while it was promised a latency.
        promised_reads,
        /// Of these, those that took longer.
        late_reads,
    }
}

/// The same counters of every core.
#[derive(Debug)]
pub(crate) struct PerCore<T>(Box<[T]>);

impl<T: Default> PerCore<T> {
    pub(crate) fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| T::default()).collect())
    }

    pub(crate) fn of(&self, core: usize) -> &T {
        &self.0[core]
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read_and_cores_add_up() {
        let cores = PerCore::<SharedNamespaceStats>::new(2);
        cores.of(0).publish(&NamespaceStats {
            reads: 3,
            ..NamespaceStats::default()
        });
        cores.of(1).publish(&NamespaceStats {
            reads: 4,
            errors: 1,
            ..NamespaceStats::default()
        });
        let mut total = NamespaceStats::default();
        for core in cores.iter() {
            total.add(&core.load());
        }
        assert_eq!((total.reads, total.errors), (7, 1));
    }
}
