//! Counters: plain numbers on the core that counts, published as atomics now and then.
//!
//! Each core writes only its own copy, so counting costs an addition and publishing a few stores;
//! a reader adds up the cores.

/// A counter of a snapshot as metrics show it.
#[derive(Clone, Copy, Debug)]
pub struct Metric<S> {
    /// Its name, without the program's prefix and without the suffix of its unit; `_bytes` at its
    /// end is the unit.
    pub name: &'static str,
    /// The doc comment of the field, line by line.
    pub help: &'static str,
    /// The meaning of its values.
    pub kind: MetricKind,
    /// Reads it.
    pub value: fn(&S) -> u64,
}

/// The meaning of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number since the start, which never falls.
    Counter,
    /// A duration since the start in nanoseconds, which never falls.
    Duration,
    /// A number at this moment.
    Gauge,
}

/// Declares a struct of counters: the only place that names a counter beside the one that counts it.
///
/// The fields are added up over cores, written to JSON by their names, and, where `=> KIND "NAME"`
/// says so, shown as a metric with the doc comment as its help. After a semicolon follow parts that are
/// such structs themselves. `/ SHARED` also declares the copy that a core publishes.
macro_rules! counters {
    (@metric $field:ident, $($doc:literal)+, ) => {
        None
    };
    (@metric $field:ident, $($doc:literal)+, $kind:ident $name:literal) => {
        Some($crate::stats::Metric::<Self> {
            name: $name,
            help: concat!($($doc),+),
            kind: $crate::stats::MetricKind::$kind,
            value: |counters| counters.$field,
        })
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident / $shared:ident {
            $( $(#[doc = $doc:literal])+ $field:ident $(=> $kind:ident $metric:literal)?, )+
        }
    ) => {
        counters! {
            $(#[$meta])*
            pub struct $name { $( $(#[doc = $doc])+ $field $(=> $kind $metric)?, )+ }
        }

        /// One core's published copy, on cache lines of its own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct $shared { $( $field: std::sync::atomic::AtomicU64, )+ }

        impl $shared {
            pub(crate) fn publish(&self, counters: &$name) {
                $( self.$field.store(counters.$field, std::sync::atomic::Ordering::Relaxed); )+
            }

            pub(crate) fn load(&self) -> $name {
                $name { $( $field: self.$field.load(std::sync::atomic::Ordering::Relaxed), )+ }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[doc = $doc:literal])+ $field:ident $(=> $kind:ident $metric:literal)?, )+
            $(; $( $(#[$part_meta:meta])+ $part:ident: $part_type:ty, )+ )?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: u64, )+
            $( $( $(#[$part_meta])+ pub $part: $part_type, )+ )?
        }

        impl $name {
            /// Returns the fields that metrics show.
            pub fn metrics() -> impl Iterator<Item = $crate::stats::Metric<Self>> {
                let fields = [$( counters!(@metric $field, $($doc)+, $($kind $metric)?), )+];
                fields.into_iter().flatten()
            }

            /// Adds another core's numbers.
            pub fn add(&mut self, other: &Self) {
                $( self.$field += other.$field; )+
                $( $( self.$part.add(&other.$part); )+ )?
            }
        }
    };
}

pub(crate) use counters;

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
        /// Read commands that ended with an error.
        read_errors,
        /// Write commands that ended with an error.
        write_errors,
        /// Flush commands of this namespace alone that ended with an error.
        flush_errors,
        /// Other commands that ended with an error.
        other_errors,
    }
}

counters! {
    /// Counters of a core.
    pub struct CoreStats / SharedCoreStats {
        /// Open connections of the core.
        connections => Gauge "core_connections",
        /// I/O queues open now that their hosts connected with class `Latency`.
        latency_queues,
        /// I/O queues open now that their hosts connected with class `Throughput`.
        throughput_queues,
        /// Commands that the queues of the core have memory for.
        command_places => Gauge "core_command_places",
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
        /// Connects refused because the hosts of a tenant have as many connections as they may.
        connects_refused_per_tenant,
        /// Connects refused because as many entries of queues are promised as may be, to all hosts or
        /// to those of an address or a tenant.
        connects_refused_entries,
        /// Fabrics and admin commands received.
        admin_commands => Counter "core_admin_commands",
        /// I/O commands received.
        io_commands => Counter "core_io_commands",
        /// R2Ts sent.
        r2ts => Counter "core_r2ts",
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
        /// Those where the host's tenant did, or without one its network.
        tenant_share_waits,
        /// Those where all queues of class `Throughput` did.
        throughput_share_waits,
        /// Commands over extents refused because their queue had as many as it may.
        extents_in_flight_refused,
        /// Commands over extents refused because no table was left for their host.
        extent_tables_refused,
        /// Times that an answer waited because no send list was left for its connection.
        list_waits,
        /// Connections closed because Connect took too long.
        connect_timeouts,
        /// Connections closed because a PDU was not completed in time.
        pdu_timeouts,
        /// Connections closed because neither data that we asked for nor a send made progress.
        stall_timeouts,
        /// Connections that the kernel gave up because their peer acknowledged nothing in time.
        socket_timeouts,
        /// Connections closed because a command's data was not complete in time.
        transfer_timeouts,
        /// Connections closed because a change waited for a command's data.
        pause_timeouts,
        /// Connections closed because their host did not close them after our last word.
        linger_timeouts,
        /// Requests that the device had no room for at first.
        device_waits => Counter "core_device_waits",
        /// Commands that waited for a paused namespace.
        pause_waits => Counter "core_pause_waits",
        /// Answers that waited because the host did not read.
        output_waits,
        /// Controllers ended because their host fell silent.
        keep_alive_expirations,
        /// Controllers ended because they had neither a keep-alive timer nor I/O queues, and got no
        /// command for too long.
        controller_idle_timeouts,
        /// Discovery controllers ended because they had no keep-alive timer and got no command for
        /// too long.
        discovery_idle_timeouts,
        /// Bytes of the core's payload buffers.
        buffer_bytes,
        /// Of these, bytes of buffers in use now.
        buffer_bytes_used,
        /// Commands in line for a buffer, or for their share of them, now.
        buffer_waiters,
        /// Send lists in use now.
        send_lists_used,
        /// Tables of commands over extents in use now.
        extent_tables_used,
        /// Connections that have not got through Connect now.
        fresh_connections,
        /// Bytes that devices work on for commands without a buffer, now.
        work_bytes,
        /// Commands that got a slot, or passed their gates again after a wait.
        commands_dispatched,
        /// Commands that waited for in-capsule data.
        commands_arriving,
        /// Commands that waited for data by R2T.
        commands_transferring,
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
        /// Controllers that their hosts disabled, or with a shutdown that failed after that.
        controllers_disabled,
        /// Controllers that became ready.
        controllers_ready,
        /// Controllers with a shutdown that flushes.
        controllers_shutting_down,
        /// Controllers that were shut down.
        controllers_shut_down,
        /// Time in which the core had something to do, in nanoseconds.
        work_ns => Duration "core_work",
        /// Turns of the core's loop.
        loops => Counter "core_loops",
        /// Sleeps in the kernel.
        sleeps => Counter "core_sleeps",
        /// System calls that received something.
        receives => Counter "core_receives",
        /// Data received.
        received_bytes => Counter "core_received_bytes",
        /// System calls that sent something.
        sends => Counter "core_sends",
        /// Data sent.
        sent_bytes => Counter "core_sent_bytes",
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
        errors => Counter "tenant_errors",
        /// Tokens of its own: generated for it, or its share of what was left.
        earned_milli,
        /// Tokens that its commands cost.
        spent_milli,
        /// Tokens that it did not need and gave back.
        given_milli,
        /// Tokens lent to it, as a latency-critical tenant, while no other tenant wanted them.
        taken_milli,
        /// Rounds in which it was stopped, as a latency-critical tenant, at the limit of its debt.
        limited_rounds => Counter "tenant_limited_rounds",
        /// Commands that wait for tokens now.
        waiting => Gauge "tenant_waiting",
        /// Connections that it has here now, one for each namespace that they can use.
        seats,
        /// Reads done while a latency was promised.
        promised_reads => Counter "tenant_promised_reads",
        /// Reads that took longer than promised.
        late_reads => Counter "tenant_late_reads",
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
            read_errors: 1,
            ..NamespaceStats::default()
        });
        let mut total = NamespaceStats::default();
        for core in cores.iter() {
            total.add(&core.load());
        }
        assert_eq!((total.reads, total.read_errors), (7, 1));
    }
}
