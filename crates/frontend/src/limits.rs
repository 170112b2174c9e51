//! Every limit of this crate, with its unit in the name and its reason beside it.

use base::Nanos;

/// The most data of one NBD request, in bytes: what the specification has servers take.
/// `[NBD "Block size constraints"]`
pub const NBD_REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Connections of an NBD server. One client opens a few.
pub const NBD_CONNECTIONS_MAX: usize = 256;

/// Requests of an NBD connection that are not answered; further ones wait in the socket. As many
/// as the kernel's client sends.
pub const NBD_REQUESTS_MAX: usize = 256;

/// The most bytes of an option's data: a name of 4,096 bytes, and as many contexts as make sense.
pub const NBD_OPTION_BYTES_MAX: usize = 16 * 1024;

/// Options of one client: a few dozen are more than any sends.
pub const NBD_OPTIONS_MAX: u32 = 256;

/// Time for a whole handshake.
pub const NBD_NEGOTIATION_TIME: Nanos = Nanos::from_secs(10);

/// Time for the data of one write to arrive, and for replies to be taken by the client.
pub const NBD_TRANSFER_TIME: Nanos = Nanos::from_secs(60);

/// Time for the requests under way when a front end detaches; then connections are reset.
pub const DRAIN_TIME: Nanos = Nanos::from_secs(10);

/// Requests of one core of a front end under way.
pub const CORE_REQUESTS_MAX: usize = 4096;

/// Requests beyond that, of which the data was on its way when the core became full: one of each
/// connection.
pub const CORE_REQUESTS_RESERVE: usize = NBD_CONNECTIONS_MAX;

/// Pieces of one NBD request: with its reply's header they fit into one send list.
pub const NBD_REQUEST_PIECES_MAX: u32 = 512;

/// Sockets of a core beside those of its clients: the lanes to a target.
pub const LANE_SOCKETS: usize = 64;

/// Entries of a virtio queue: as many as QEMU allows.
pub const VRING_ENTRIES_MAX: u16 = 1024;

/// Request queues of one vhost-user device.
pub const VRINGS_MAX: u16 = 64;

/// Regions of a guest's memory, as many as a message of vhost-user has descriptors for.
pub const GUEST_REGIONS_MAX: usize = 32;

/// Time for which a vhost-user front end may be silent in the middle of a message.
pub const VHOST_MESSAGE_TIME: Nanos = Nanos::from_secs(10);
