//! Limits of the control plane, each with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Keys of one kind of one host that the interface adds, or that one file has: old and new ones while
/// they are changed.
pub const HOST_KEYS_MAX: usize = 16;

/// Bytes of a device that are zeroed at once, and then synced: requests for the page in which they
/// begin wait for that.
pub const ERASE_PIECE_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of a file with the key of an encrypted device, or of the output of the command that prints
/// it: far more than a key has.
pub const CRYPT_KEY_BYTES_MAX: usize = 4096;

/// Longest run of the command that prints the key of an encrypted device: a client of a KMS may try
/// a second server.
pub const CRYPT_KEY_COMMAND_TIME: Duration = Duration::from_secs(30);

/// The share of a device's rate that a calibration may spend while it serves, in hundredths.
pub const CALIBRATION_SHARE_PERCENT: RangeInclusive<u32> = 1..=100;

/// Length of such a calibration: a shorter one sees nothing, and after an hour the device is
/// another one.
pub const CALIBRATION_SECONDS: RangeInclusive<u32> = 1..=3600;

/// Its default.
pub const CALIBRATION_SECONDS_DEFAULT: u32 = 30;

/// Changes and snapshots that wait for the dataplane at one time; the rest queue behind them.
pub const API_BLOCKING_THREADS_MAX: usize = 4;

/// Time between two lines of the log about connections that the HTTP interface cannot accept, or
/// whose handshake of TLS failed.
pub const API_ACCEPT_LOG_PERIOD_MS: u64 = 60_000;

/// Rest of the life of the interface's certificate from which on its reading warns, in seconds: two
/// weeks, in which a person can act.
pub const CERTIFICATE_WARNING_S: u64 = 14 * 86_400;

/// Time in which a target that is taken over finishes all outstanding commands, and in which each
/// message between the two processes must arrive. Hosts wait for that time; their keep-alive timers
/// are longer.
pub const TAKEOVER_PATIENCE: Duration = Duration::from_secs(5);

/// Time in which the caches of a target that is taken over write back while hosts are served.
pub const TAKEOVER_DRAIN: Duration = Duration::from_secs(10);

/// Pages of 4 KiB that each cache may then leave to the pause.
pub const TAKEOVER_DIRTY_MAX: u32 = 1024;

/// Time in which its successor opens all devices and starts. Hosts are served meanwhile.
pub const TAKEOVER_START: Duration = Duration::from_secs(60);

/// Time for which a stop waits for responses that are being written.
pub const API_STOP_GRACE_MS: u64 = 1_000;

/// Longest wait of a request for events, in milliseconds: shorter than the patience of proxies
/// between.
pub const EVENTS_WAIT_MS_MAX: u64 = 60_000;

/// Interval at which the records of a trace are taken: the cores' room for them lasts that long.
pub const TRACE_LOOK: Duration = Duration::from_millis(100);

/// Longest time between two lines that count the lost records of a trace: by writing them, a target
/// notices a client that has gone.
pub const TRACE_LINE_PERIOD: Duration = Duration::from_secs(1);

/// Interval at which a waiting request looks for events: events are about seconds.
pub const EVENTS_LOOK: Duration = Duration::from_millis(100);
