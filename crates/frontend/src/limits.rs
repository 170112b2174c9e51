//! Every limit of this crate, with its unit in the name and its reason beside it.

use base::Nanos;
use base::units::KIB;
use reactor::BufferClass;

/// The largest device of a front end, in bytes. Files and block devices of Linux have signed sizes, and
/// so have clients of NBD, of which some take a larger device for an empty one.
pub const DEVICE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();

/// The most data of one NBD request, in bytes: what the specification has servers take.
/// `[NBD "Block size constraints"]`
pub const NBD_REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Memory of each NBD connection that no other one can take: enough for a few small requests under
/// way. 64 MiB for all connections, of which those that never need it take nothing.
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

/// Connections of an NBD server. One client opens a few.
pub const NBD_CONNECTIONS_MAX: usize = 256;

/// Requests of an NBD connection that are not answered; further ones wait in the socket. As many
/// as the kernel's client sends.
pub const NBD_REQUESTS_MAX: usize = 256;

/// The most bytes of an option's data: a name of 4,096 bytes, and as many contexts as make sense.
pub const NBD_OPTION_BYTES_MAX: usize = 16 * 1024;

/// Options of one client: a few dozen are more than any sends.
pub const NBD_OPTIONS_MAX: u32 = 256;

/// Connections of a server in the handshake: a further one ends the oldest of them, so that clients
/// which never finish it do not keep others out.
pub const NBD_NEGOTIATIONS_MAX: usize = 64;

/// Time for a whole handshake.
pub const NBD_NEGOTIATION_TIME: Nanos = Nanos::from_secs(10);

/// Time for the data of one write to arrive, and for replies to be taken by the client.
pub const NBD_TRANSFER_TIME: Nanos = Nanos::from_secs(60);

/// The same where another client has waited for memory for so long. A client that takes all buffers
/// of a core at 25 MB/s keeps within it.
pub const NBD_CROWDED_TIME: Nanos = Nanos::from_secs(5);

/// Time for the requests under way when a front end detaches; then they are given up, and connections
/// are reset: a device that has not answered by then may never do.
pub const DRAIN_TIME: Nanos = Nanos::from_secs(10);

/// The most data of one send through TLS, in bytes. Each connection with TLS has memory for one:
/// 32 MiB for all connections.
pub const NBD_SEALED_BYTES: usize = 128 * 1024;

/// Requests of one core of a front end under way.
pub const CORE_REQUESTS_MAX: usize = 4096;

/// Requests beyond that, of which the data was on its way when the core became full: one of each
/// connection.
pub const CORE_REQUESTS_RESERVE: usize = NBD_CONNECTIONS_MAX;

/// Pieces of one NBD request: with its reply's header they fit into one send list.
pub const NBD_REQUEST_PIECES_MAX: u32 = 512;

/// Sockets of a core beside those of its clients: the lanes to a target.
pub const LANE_SOCKETS: usize = 64;

/// Requests of each queue of a ublk device that the kernel hands out at a time: as many as its own
/// drivers of fast devices have at least.
pub const UBLK_DEPTH: u16 = 128;

/// Queues of a ublk device.
pub const UBLK_QUEUES_MAX: u16 = 64;

/// The most data of one request of a ublk device, in bytes; less where the device takes less at a
/// time. A core has 128 buffers of this size.
pub const UBLK_REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Time in which the kernel closes what a killed front end left of a ublk device. It takes
/// milliseconds, once the requests that were under way are given back.
pub const UBLK_LEFT_TIME: Nanos = Nanos::from_secs(10);

/// Time for the kernel to remove a ublk device without a block device. It takes milliseconds; where the
/// block device was open, its number is free when the last user closes it.
pub const UBLK_DELETE_TIME: Nanos = Nanos::from_secs(1);

/// Entries of a virtio queue: as many as QEMU allows.
pub const VRING_ENTRIES_MAX: u16 = 1024;

/// Request queues of one vhost-user device.
pub const VRINGS_MAX: u16 = 64;

/// Regions of a guest's memory: as many as other back ends take. Machines with hot-plugged memory have
/// one for each module.
pub const GUEST_REGIONS_MAX: usize = 509;

/// Time for which a vhost-user front end may be silent in the middle of a message.
pub const VHOST_MESSAGE_TIME: Nanos = Nanos::from_secs(10);

/// Time for the device to answer the requests of a virtqueue that stops: the machine's monitor, and with
/// it the machine, stands still meanwhile.
pub const VHOST_STOP_TIME: Nanos = Nanos::from_secs(2);

/// Time for a machine to disconnect after another one has connected, which is disconnected otherwise.
pub const VHOST_SECOND_TIME: Nanos = Nanos::from_secs(2);

/// Lines that clients or guests of a server can make it log in each [`LOG_PERIOD`]: enough to see
/// what goes on, too few to fill a disk.
pub const LOG_LINES_MAX: u32 = 5;

/// The period of [`LOG_LINES_MAX`].
pub const LOG_PERIOD: Nanos = Nanos::from_secs(10);
