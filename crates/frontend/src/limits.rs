//! Limits of this crate, each with its unit in the name and its reason.

use base::Nanos;
use base::units::KIB;
use reactor::BufferClass;

/// Largest device of a front end, in bytes. Files and block devices of Linux have signed sizes, and
/// so do NBD clients, some of which treat a larger device as empty.
pub const DEVICE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();

/// Maximum data of one NBD request, in bytes: the size that the specification requires servers to
/// accept. `[NBD "Block size constraints"]`
pub const NBD_REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Memory reserved for each NBD connection: enough for a few small outstanding requests. 64 MiB for
/// all connections, allocated only when used.
pub const NBD_RESERVE: [BufferClass; 2] = [
    BufferClass {
        bytes: 4 * KIB,
        count: 16,
    },
    BufferClass {
        bytes: 64 * KIB,
        count: 3,
    },
];

/// Maximum connections of an NBD server. One client opens a few.
pub const NBD_CONNECTIONS_MAX: usize = 256;

/// Maximum unanswered requests of an NBD connection; further requests wait in the socket. The
/// kernel's client sends as many.
pub const NBD_REQUESTS_MAX: usize = 256;

/// Maximum data of an option, in bytes: a name of 4,096 bytes, and the metadata contexts that
/// exist.
pub const NBD_OPTION_BYTES_MAX: usize = 16 * 1024;

/// Maximum options of one client: no client sends more than a few dozen.
pub const NBD_OPTIONS_MAX: u32 = 256;

/// Maximum connections of a server in the handshake. One more ends the oldest of them, so that
/// clients which never finish it cannot lock out other clients.
pub const NBD_NEGOTIATIONS_MAX: usize = 64;

/// Time for a whole handshake.
pub const NBD_NEGOTIATION_TIME: Nanos = Nanos::from_secs(10);

/// Timeout for the data of one write to arrive, and for the client to receive replies.
pub const NBD_TRANSFER_TIME: Nanos = Nanos::from_secs(60);

/// [`NBD_TRANSFER_TIME`] while another client has waited that long for memory. A client that holds
/// all buffers of a core and transfers 25 MB/s stays within it.
pub const NBD_CROWDED_TIME: Nanos = Nanos::from_secs(5);

/// Time for outstanding requests when a front end detaches. They are then cancelled and connections
/// are reset, because a device that has not responded by then may never respond.
pub const DRAIN_TIME: Nanos = Nanos::from_secs(10);

/// Maximum data of one send through TLS, in bytes. Each connection with TLS has memory for one
/// send: 32 MiB for all connections.
pub const NBD_SEALED_BYTES: usize = 128 * 1024;

/// Maximum outstanding requests of one core of a front end.
pub const CORE_REQUESTS_MAX: usize = 4096;

/// Additional requests whose data was already in transit when the core became full: one per
/// connection.
pub const CORE_REQUESTS_RESERVE: usize = NBD_CONNECTIONS_MAX;

/// Maximum pieces of one NBD request: with its reply's header they fit in one send list.
pub const NBD_REQUEST_PIECES_MAX: u32 = 512;

/// Sockets of a core in addition to those of its clients: the lanes to a target.
pub const LANE_SOCKETS: usize = 64;

/// Queue depth of a ublk device: at least that of the kernel's own drivers of fast devices.
pub const UBLK_DEPTH: u16 = 128;

/// Maximum queues of a ublk device.
pub const UBLK_QUEUES_MAX: u16 = 64;

/// Maximum data of one request of a ublk device, in bytes; less if the device accepts less. A core
/// has 128 buffers of this size.
pub const UBLK_REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Time for the kernel to close the ublk device of a killed front end. It takes milliseconds once
/// the outstanding requests are returned.
pub const UBLK_LEFT_TIME: Nanos = Nanos::from_secs(10);

/// Time for the kernel to remove a ublk device without a block device. It takes milliseconds. If
/// the block device was open, its number becomes free when the last user closes it.
pub const UBLK_DELETE_TIME: Nanos = Nanos::from_secs(1);

/// Maximum entries of a virtio queue, the same as in QEMU.
pub const VRING_ENTRIES_MAX: u16 = 1024;

/// Maximum request queues of one vhost-user device.
pub const VRINGS_MAX: u16 = 64;

/// Maximum regions of a guest's memory, the same as in other back ends. Machines with hot-plugged
/// memory have one per module.
pub const GUEST_REGIONS_MAX: usize = 509;

/// Timeout for a vhost-user front end that pauses in the middle of a message.
pub const VHOST_MESSAGE_TIME: Nanos = Nanos::from_secs(10);

/// Time for the device to complete the requests of a virtqueue that stops. The monitor, and with it
/// the machine, is blocked meanwhile.
pub const VHOST_STOP_TIME: Nanos = Nanos::from_secs(2);

/// Time for the connected virtual machine to disconnect after a second one has connected; after it
/// the second one is disconnected.
pub const VHOST_SECOND_TIME: Nanos = Nanos::from_secs(2);

/// Maximum log lines that clients or guests of a server can cause in each [`LOG_PERIOD`]: enough to
/// diagnose, too few to fill a disk.
pub const LOG_LINES_MAX: u32 = 5;

/// The period of [`LOG_LINES_MAX`].
pub const LOG_PERIOD: Nanos = Nanos::from_secs(10);
