//! The encryption of one connection after its handshake, and the memory that sessions share.

use crate::limits::RECORDS_WORN;
use crate::memory::IoSlice;
use crate::send_list::{ListPosition, SendList};
use base::mutation::{self, Mutation};
use secure::psk::Identity;
use secure::record::{
    Alert, DATA_MAX, Fields, HEADER_BYTES, MESSAGE_MAX, OVERHEAD_BYTES, Opened, Opener, RECORD_MAX,
    RECORDS_MAX, RecordError, Sealer, Suite, pack, record_bytes, unpack,
};
use std::io;
use zeroize::Zeroizing;

/// Records of one send: those of a 128 KiB transfer with its header.
const SEALED_RECORDS: usize = 9;

/// Room for the records of one send, and for a KeyUpdate before them.
const SEALED_BYTES: usize = SEALED_RECORDS * (DATA_MAX + OVERHEAD_BYTES) + MESSAGE_MAX;

/// Encrypted bytes of a receive: they contain less data than a receive buffer has room for.
const RECEIVED_BYTES: usize = crate::limits::RECEIVE_BUFFER_BYTES;

const _: () = assert!(RECEIVED_BYTES > 4 * RECORD_MAX, "a receive makes progress");

/// What a handshake proved about the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The host's NQN in the identity of the pre-shared key.
    pub host_nqn: String,
    /// The subsystem's NQN in it.
    pub subsystem_nqn: String,
    /// The cipher suite.
    pub suite: Suite,
}

impl Proven {
    /// Creates it from the identity that was negotiated; `None` if it is none of NVMe/TCP.
    pub(super) fn new(identity: &str, suite: Suite) -> Option<Self> {
        let identity = Identity::parse(identity.as_bytes()).ok()?;
        Some(Self {
            host_nqn: identity.hostnqn.to_owned(),
            subsystem_nqn: identity.subnqn.to_owned(),
            suite,
        })
    }
}

/// The keys of one connection, and the record that has arrived partly.
#[derive(Debug)]
pub struct Session {
    sealer: Sealer,
    opener: Opener,
    /// The beginning of a record; without memory while there is none.
    partial: Vec<u8>,
    /// The peer sends nothing more.
    ended: bool,
    /// Nothing more is sent.
    over: bool,
    /// A key was reported as nearly worn.
    worn: bool,
    proven: Proven,
}

impl Session {
    /// Creates the session from the keys of both directions.
    #[must_use]
    pub const fn new(sealer: Sealer, opener: Opener, proven: Proven) -> Self {
        Self {
            sealer,
            opener,
            partial: Vec::new(),
            ended: false,
            over: false,
            worn: false,
            proven,
        }
    }

    /// What the handshake proved about the peer.
    #[must_use]
    pub const fn proven(&self) -> &Proven {
        &self.proven
    }

    /// Returns the state with which another process continues, in which nothing is being sent. It
    /// contains the secrets of the connection.
    #[must_use]
    pub fn pack(&self) -> Zeroizing<Vec<u8>> {
        let names = [&self.proven.host_nqn, &self.proven.subsystem_nqn];
        let length = names.map(String::len).iter().sum::<usize>() + self.partial.len();
        let mut out = pack(&self.sealer, &self.opener, 3 + 2 * 8 + length);
        out.extend([self.ended, self.over, self.worn].map(u8::from));
        for name in names {
            out.extend((name.len() as u64).to_le_bytes());
            out.extend(name.bytes());
        }
        out.extend_from_slice(&self.partial);
        out
    }

    /// Continues with the state of another process; `None` if it is malformed.
    #[must_use]
    pub fn unpack(state: &[u8]) -> Option<Self> {
        let mut fields = Fields(state);
        let (sealer, opener) = unpack(&mut fields)?;
        let [ended, over, worn] = fields.take()?.map(|byte: u8| byte != 0);
        let mut name = || {
            let length = usize::try_from(fields.number()?).ok()?;
            let name = std::str::from_utf8(fields.bytes(length)?).ok()?;
            Some(name.to_owned())
        };
        let proven = Proven {
            host_nqn: name()?,
            subsystem_nqn: name()?,
            suite: sealer.suite(),
        };
        if fields.0.len() >= RECORD_MAX {
            return None;
        }
        Some(Self {
            partial: fields.0.to_vec(),
            ended,
            over,
            worn,
            ..Self::new(sealer, opener, proven)
        })
    }

    /// Returns true once, when one of the keys is nearly worn.
    pub(crate) fn begins_to_wear(&mut self) -> bool {
        let records = self.sealer.records().max(self.opener.records());
        records >= RECORDS_WORN && !std::mem::replace(&mut self.worn, true)
    }

    /// Encrypts the next bytes of a list, as many as one send takes, and appends their records to
    /// `sealed`.
    pub fn seal(&mut self, list: &SendList, position: &mut ListPosition, sealed: &mut Sealed) {
        let out = &mut sealed.bytes;
        let mut end = sealed.end;
        // A peer that sends KeyUpdate also takes it, which not all do.
        let worn = self.sealer.records() >= RECORDS_MAX - 1 && self.opener.updates() > 0;
        if self.opener.take_update_asked() || worn {
            end += self.sealer.update(&mut out[end..]);
        }
        while out.len() - end >= OVERHEAD_BYTES + DATA_MAX {
            let data = &mut out[end + HEADER_BYTES..][..DATA_MAX];
            let len = list.gather(position, data);
            if len == 0 {
                break;
            }
            let record = &mut out[end..end + OVERHEAD_BYTES + len];
            self.sealer.seal(record);
            end += record.len();
            if len < DATA_MAX {
                break;
            }
        }
        sealed.end = end;
    }

    /// Writes an alert, after which nothing is sent. Returns its length; 0 if nothing may be sent.
    pub fn alert(&mut self, alert: Alert, out: &mut [u8; MESSAGE_MAX]) -> usize {
        if std::mem::replace(&mut self.over, true) {
            return 0;
        }
        self.sealer.alert(alert, out)
    }

    /// Ends the sending side without an alert.
    pub(crate) const fn silence(&mut self) {
        self.over = true;
    }

    /// Returns true once nothing more may be sent.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Returns true once the peer has said that it sends nothing more.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Copies the part of a record that has arrived to the front of `received`. Returns its length:
    /// more bytes belong behind it.
    pub fn begin(&mut self, received: &mut [u8]) -> usize {
        received[..self.partial.len()].copy_from_slice(&self.partial);
        self.partial.len()
    }

    /// Decrypts the complete records of `received`, in place, and keeps the rest for the next time.
    /// The data fills `into`, then `rest`. Returns the lengths of both.
    ///
    /// # Errors The reason to end the connection; `UnexpectedEof` if the peer sends nothing more
    /// and no data came before. Data before an error is dropped.
    pub fn open(
        &mut self,
        received: &mut [u8],
        mut into: Option<&mut IoSlice>,
        rest: &mut [u8],
    ) -> Result<(usize, usize), SessionEnd> {
        let wanted = into.as_ref().map_or(0, |slice| slice.len());
        let (mut filled, mut behind, mut start) = (0, 0, 0);
        while !self.ended {
            let Some(len) = record_bytes(&received[start..])? else {
                break;
            };
            let Some(record) = received.get_mut(start..start + len) else {
                break;
            };
            start += len;
            match self.opener.open(record)? {
                Opened::Data(range) => {
                    let data = &record[range];
                    let first = data.len().min(wanted - filled);
                    if let Some(slice) = into.as_deref_mut() {
                        slice.copy_in(filled, &data[..first]);
                        filled += first;
                    }
                    let data = &data[first..];
                    if mutation::active(Mutation::TlsDataReplaced) {
                        behind = 0;
                    }
                    rest[behind..][..data.len()].copy_from_slice(data);
                    behind += data.len();
                }
                Opened::Message => {}
                Opened::End => self.ended = true,
            }
        }
        let left = &received[start..];
        if left.is_empty() {
            // Idle connections have no memory for records.
            if self.partial.capacity() > 0 && start > 0 && filled + behind < DATA_MAX {
                self.partial = Vec::new();
            }
            self.partial.clear();
        } else {
            self.partial.clear();
            self.partial.reserve_exact(RECORD_MAX);
            self.partial.extend_from_slice(left);
        }
        if self.ended && filled + behind == 0 {
            return Err(SessionEnd::Closed);
        }
        Ok((filled, behind))
    }
}

/// The end of a connection's data.
#[derive(Debug)]
pub enum SessionEnd {
    /// The peer said that nothing follows.
    Closed,
    /// The peer violated the protocol, or ended it with an alert.
    Broken(RecordError),
}

impl SessionEnd {
    /// The alert that tells the peer; `None` if the peer ended the connection.
    #[must_use]
    pub fn alert(&self) -> Option<Alert> {
        match self {
            Self::Closed => None,
            Self::Broken(error) => error.alert(),
        }
    }
}

impl From<RecordError> for SessionEnd {
    fn from(error: RecordError) -> Self {
        Self::Broken(error)
    }
}

impl From<SessionEnd> for io::Error {
    fn from(end: SessionEnd) -> Self {
        match end {
            SessionEnd::Closed => io::ErrorKind::UnexpectedEof.into(),
            SessionEnd::Broken(error) => Self::new(io::ErrorKind::InvalidData, error),
        }
    }
}

/// Encrypted bytes on their way to the kernel.
#[derive(Debug)]
pub struct Sealed {
    bytes: Vec<u8>,
    sent: usize,
    end: usize,
}

impl Sealed {
    /// Returns the bytes that the kernel has not accepted.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..self.end]
    }

    /// Records that the kernel has accepted `bytes` more.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.end {
            (self.sent, self.end) = (0, 0);
        }
    }
}

/// Memory of a core's sessions: each takes some only while it sends or receives.
#[derive(Debug, Default)]
pub struct TlsMemory {
    received: Vec<u8>,
    spare: Vec<Sealed>,
}

impl TlsMemory {
    /// Memory for the encrypted bytes of one receive.
    pub fn received(&mut self) -> &mut [u8] {
        self.received.resize(RECEIVED_BYTES, 0);
        &mut self.received
    }

    /// Takes memory for one send; the number of sends bounds it.
    pub fn take(&mut self) -> Sealed {
        self.spare.pop().unwrap_or_else(|| Sealed {
            bytes: vec![0; SEALED_BYTES],
            sent: 0,
            end: 0,
        })
    }

    /// Returns memory of a send, with or without unsent bytes.
    pub fn give_back(&mut self, mut sealed: Sealed) {
        (sealed.sent, sealed.end) = (0, 0);
        if self.spare.len() < SPARE_MAX {
            self.spare.push(sealed);
        }
    }
}

/// Maximum unused memory pieces for sends of a core.
const SPARE_MAX: usize = 16;

#[cfg(test)]
mod tests;
