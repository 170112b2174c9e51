//! Counters: plain numbers on the core that counts, periodically published as atomics.
//!
//! Each core writes only its own copy, so counting costs an addition and publishing a few stores; a
//! reader sums over the cores.

/// A counter of a snapshot, as a metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric<S> {
    /// The name, without the program's prefix and the suffix of the unit; a name that ends in
    /// `_bytes` contains its unit.
    pub name: &'static str,
    /// The doc comment of the field.
    pub help: &'static str,
    /// The meaning of its values.
    pub kind: MetricKind,
    /// Returns the value.
    pub value: fn(&S) -> u64,
}

/// The meaning of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A total since the start; it never falls.
    Counter,
    /// A total duration since the start in nanoseconds; it never falls.
    Duration,
    /// A current value.
    Gauge,
}

/// Declares a struct of counters, which is the only list of their names.
///
/// The fields are summed over cores and written to JSON by name. A field with `=> KIND "NAME"` is
/// also exported as a metric, with its doc comment as the help text. Nested structs of counters
/// follow after a semicolon. `/ SHARED` also declares the copy that a core publishes.
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
            /// Returns the fields that are exported as metrics.
            pub fn metrics() -> impl Iterator<Item = $crate::stats::Metric<Self>> {
                let fields = [$( counters!(@metric $field, $($doc)+, $($kind $metric)?), )+];
                fields.into_iter().flatten()
            }

            /// Adds the numbers of another core.
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
        /// Completed Read commands.
        reads,
        /// Bytes read.
        read_bytes,
        /// Completed Write commands.
        writes,
        /// Bytes written.
        written_bytes,
        /// Completed Flush commands of this namespace alone.
        flushes,
        /// Other completed commands: Write Zeroes, Dataset Management, Compare, Verify.
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
        /// Open I/O queues whose hosts connected with class `Latency`.
        latency_queues,
        /// Open I/O queues whose hosts connected with class `Throughput`.
        throughput_queues,
        /// Commands for which the core's queues have memory.
        command_places => Gauge "core_command_places",
        /// Connections accepted.
        accepted,
        /// Connections refused because of a limit.
        refused,
        /// Connections closed because too many had not completed Connect.
        fresh_closed,
        /// Connections refused because of the limit per address.
        refused_per_address,
        /// Connects refused because of a limit on controllers: per host, per address, per tenant,
        /// for discovery, or in total.
        controllers_refused,
        /// Connects refused because of the limit on controllers per host.
        controllers_refused_per_host,
        /// Connects refused because of the limit on controllers per address.
        controllers_refused_per_address,
        /// Connects refused because of the limit on controllers per tenant.
        controllers_refused_per_tenant,
        /// Connects refused because of the limit on discovery controllers.
        controllers_refused_discovery,
        /// Connects refused because of the limit on connections per tenant.
        connects_refused_per_tenant,
        /// Connects refused because of the limit on queue entries, in total, per address or per
        /// tenant.
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
        /// Payloads whose digest did not match.
        data_digest_errors,
        /// Commands that waited for a buffer.
        buffer_waits,
        /// Waits of a command because a share of the buffers was used up.
        share_waits,
        /// Waits because the share of the connection was used up.
        connection_share_waits,
        /// Waits because the share of the host was used up.
        host_share_waits,
        /// Waits because the share of the host's tenant, or of its network without a tenant, was
        /// used up.
        tenant_share_waits,
        /// Waits because the share of all queues of class `Throughput` was used up.
        throughput_share_waits,
        /// Commands over extents refused because of their queue's limit.
        extents_in_flight_refused,
        /// Commands over extents refused because no extent table was available to their host.
        extent_tables_refused,
        /// Waits of an answer because no send list was available to its connection.
        list_waits,
        /// Connections closed because Connect took too long.
        connect_timeouts,
        /// Authentications by DH-HMAC-CHAP that failed.
        authentication_failures => Counter "core_authentication_failures",
        /// Connections closed because their host did not authenticate in time.
        authentication_timeouts => Counter "core_authentication_timeouts",
        /// Connections closed because a PDU was not complete in time.
        pdu_timeouts,
        /// Connections closed because a requested transfer or a send made no progress in time.
        stall_timeouts,
        /// Connections closed by the kernel because their peer acknowledged nothing in time.
        socket_timeouts,
        /// Connections with TLS of which a key has nearly reached its limit of records.
        worn_tls_keys => Counter "core_worn_tls_keys",
        /// Connections closed because a command's data was not complete in time.
        transfer_timeouts,
        /// Connections closed because a change waited too long for a command's data.
        pause_timeouts,
        /// Connections closed because their host did not close them after the target's last PDU.
        linger_timeouts,
        /// Requests that had to wait for room in the device.
        device_waits => Counter "core_device_waits",
        /// Commands that waited for a paused namespace.
        pause_waits => Counter "core_pause_waits",
        /// Answers that waited because the host did not receive.
        output_waits,
        /// Controllers ended because their keep-alive timer expired.
        keep_alive_expirations,
        /// Controllers ended because they had no keep-alive timer and no I/O queues, and received
        /// no command in time.
        controller_idle_timeouts,
        /// Discovery controllers ended because they had no keep-alive timer and received no command
        /// in time.
        discovery_idle_timeouts,
        /// Bytes of the core's payload buffers.
        buffer_bytes,
        /// Bytes of payload buffers in use.
        buffer_bytes_used,
        /// Commands waiting for a buffer or for their share of the buffers.
        buffer_waiters,
        /// Send lists in use.
        send_lists_used,
        /// Extent tables in use.
        extent_tables_used,
        /// Connections before the end of Connect.
        fresh_connections,
        /// Bytes that devices work on for commands without a buffer.
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
        /// Connections initialized (ICReq).
        connections_initialized,
        /// Connections that became queue pairs, or moved here.
        connections_live,
        /// Connections drained.
        connections_drained,
        /// Connections terminated with a termination request.
        connections_terminated,
        /// Connections whose socket the core closed or handed over.
        connections_closing,
        /// Connections that no longer have a socket.
        connections_closed,
        /// Controllers disabled by their hosts, or whose shutdown failed after that.
        controllers_disabled,
        /// Controllers that became ready.
        controllers_ready,
        /// Controllers that began a shutdown with a flush.
        controllers_shutting_down,
        /// Controllers that completed their shutdown.
        controllers_shut_down,
        /// Time during which the core had work, in nanoseconds.
        work_ns => Duration "core_work",
        /// Turns of the core's loop.
        loops => Counter "core_loops",
        /// Sleeps in the kernel.
        sleeps => Counter "core_sleeps",
        /// Receive system calls that returned data.
        receives => Counter "core_receives",
        /// Bytes received.
        received_bytes => Counter "core_received_bytes",
        /// Send system calls that sent data.
        sends => Counter "core_sends",
        /// Bytes sent.
        sent_bytes => Counter "core_sent_bytes",
    }
}

counters! {
    /// Counters of a tenant on a device; tokens are counted in thousandths.
    pub struct TenantStats / SharedTenantStats {
        /// Completed Read commands.
        reads,
        /// Bytes read.
        read_bytes,
        /// Completed Write commands.
        writes,
        /// Bytes written.
        written_bytes,
        /// Other completed commands: Flush, Write Zeroes, Dataset Management, Compare, Verify.
        others,
        /// Commands that ended with an error.
        errors => Counter "tenant_errors",
        /// Tokens generated for the tenant, including its share of the spare capacity.
        earned_milli,
        /// Tokens spent on the tenant's commands.
        spent_milli,
        /// Unused tokens that the tenant gave back.
        given_milli,
        /// Tokens lent to a latency-critical tenant while no other tenant wanted them.
        taken_milli,
        /// Rounds in which a latency-critical tenant was stopped at its debt limit.
        limited_rounds => Counter "tenant_limited_rounds",
        /// Commands waiting for tokens.
        waiting => Gauge "tenant_waiting",
        /// Connections of the tenant, one for each namespace that they can use.
        seats,
        /// Reads completed under a latency SLO.
        slo_reads => Counter "tenant_slo_reads",
        /// Reads that exceeded the latency of the SLO.
        late_reads => Counter "tenant_late_reads",
    }
}

/// A copy of the same counters for every core.
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
