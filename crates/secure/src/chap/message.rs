//! The messages of DH-HMAC-CHAP: bytes of Authentication Send and Receive commands ↔ values.
//! `[NVMe Base 2.0 §8.13.5.1–6]`

use super::Group;
use crate::Hash;

/// Length of the longest message in bytes: a Reply with SHA-512 and ffdhe8192.
pub const MESSAGE_BYTES_MAX: usize = 16 + 2 * 64 + 1024;

/// A message. `transaction` is T_ID: the same in all messages of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The host begins, and offers hash functions and groups.
    Negotiate(Negotiate),
    /// The controller challenges the host.
    Challenge(Challenge),
    /// The host responds, and may challenge the controller.
    Reply(Reply),
    /// The controller accepts the host, with its own response if it was challenged.
    Success1 {
        /// T_ID.
        transaction: u16,
        /// HL: bytes of the hash function.
        hash_bytes: usize,
        /// R2, if the host challenged the controller.
        response: Option<Vec<u8>>,
    },
    /// The host accepts the controller.
    Success2 {
        /// T_ID.
        transaction: u16,
    },
    /// The controller ends the exchange.
    Failure1 {
        /// T_ID.
        transaction: u16,
        /// The reason.
        explanation: Explanation,
    },
    /// The host ends the exchange.
    Failure2 {
        /// T_ID.
        transaction: u16,
        /// The reason.
        explanation: Explanation,
    },
}

/// AUTH_Negotiate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiate {
    /// T_ID.
    pub transaction: u16,
    /// SC_C: the requested secure channel; 0 for none.
    pub secure_channel: u8,
    /// Offered hash functions in the host's order. Unknown ones are left out.
    pub hashes: Vec<Hash>,
    /// Offered groups in the host's order. Unknown ones are left out.
    pub groups: Vec<Group>,
}

/// DH-HMAC-CHAP_Challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// T_ID.
    pub transaction: u16,
    /// The chosen hash function.
    pub hash: Hash,
    /// The chosen group.
    pub group: Group,
    /// S1.
    pub sequence: u32,
    /// C1, as long as the digest.
    pub challenge: Vec<u8>,
    /// The controller's public value; empty for the group NULL.
    pub public: Vec<u8>,
}

/// DH-HMAC-CHAP_Reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// T_ID.
    pub transaction: u16,
    /// S2.
    pub sequence: u32,
    /// R1, as long as the digest.
    pub response: Vec<u8>,
    /// C2, if the host challenges the controller.
    pub challenge: Option<Vec<u8>>,
    /// The host's public value; empty for the group NULL.
    pub public: Vec<u8>,
}

/// Why an exchange failed, as said to the peer. `[NVMe Base 2.0 §8.13]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Explanation {
    /// Code 01h.
    Failed,
    /// Code 02h.
    ProtocolNotUsable,
    /// Code 03h.
    SecureChannelMismatch,
    /// Code 04h.
    HashNotUsable,
    /// Code 05h.
    GroupNotUsable,
    /// Code 06h.
    IncorrectPayload,
    /// Code 07h.
    IncorrectMessage,
    /// A code that the specification does not define.
    Other(u8),
}

impl Explanation {
    const KNOWN: [Self; 7] = [
        Self::Failed,
        Self::ProtocolNotUsable,
        Self::SecureChannelMismatch,
        Self::HashNotUsable,
        Self::GroupNotUsable,
        Self::IncorrectPayload,
        Self::IncorrectMessage,
    ];

    fn from_code(code: u8) -> Self {
        let mut known = Self::KNOWN.into_iter();
        known
            .find(|known| known.code() == code)
            .unwrap_or(Self::Other(code))
    }

    fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::ProtocolNotUsable => 2,
            Self::SecureChannelMismatch => 3,
            Self::HashNotUsable => 4,
            Self::GroupNotUsable => 5,
            Self::IncorrectPayload => 6,
            Self::IncorrectMessage => 7,
            Self::Other(code) => code,
        }
    }
}

/// The specification's words.
impl core::fmt::Display for Explanation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Failed => "authentication failed",
            Self::ProtocolNotUsable => "authentication protocol not usable",
            Self::SecureChannelMismatch => "secure channel concatenation mismatch",
            Self::HashNotUsable => "hash function not usable",
            Self::GroupNotUsable => "DH group not usable",
            Self::IncorrectPayload => "incorrect payload",
            Self::IncorrectMessage => "incorrect protocol message",
            Self::Other(code) => return write!(f, "unknown reason {code:02x}h"),
        })
    }
}

/// Why bytes are not a message: the explanation for the peer, and the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {part}")]
pub struct MessageError {
    /// The reason to say to the peer.
    pub explanation: Explanation,
    /// The malformed part.
    pub part: &'static str,
}

impl Message {
    /// Returns the name of the message.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Negotiate(_) => "Negotiate",
            Self::Challenge(_) => "Challenge",
            Self::Reply(_) => "Reply",
            Self::Success1 { .. } => "Success1",
            Self::Success2 { .. } => "Success2",
            Self::Failure1 { .. } => "Failure1",
            Self::Failure2 { .. } => "Failure2",
        }
    }

    /// Returns T_ID.
    #[must_use]
    pub fn transaction(&self) -> u16 {
        match self {
            Self::Negotiate(message) => message.transaction,
            Self::Challenge(message) => message.transaction,
            Self::Reply(message) => message.transaction,
            Self::Success1 { transaction, .. }
            | Self::Success2 { transaction }
            | Self::Failure1 { transaction, .. }
            | Self::Failure2 { transaction, .. } => *transaction,
        }
    }

    /// Parses a message. Bytes after it are ignored. `hash` is the exchange's, without which a
    /// Reply has no lengths.
    ///
    /// # Errors
    ///
    /// The malformed part.
    pub fn parse(bytes: &[u8], hash: Option<Hash>) -> Result<Self, MessageError> {
        let header = bytes.first_chunk::<8>().ok_or(payload("its header"))?;
        let transaction = u16::from_le_bytes([header[4], header[5]]);
        match (header[0], header[1]) {
            (COMMON, 0x00) => parse_negotiate(bytes, transaction).map(Self::Negotiate),
            // Linux sends AUTH_Failure2 with the type of DH-HMAC-CHAP.
            (COMMON | CHAP, 0xf0 | 0xf1) => {
                if header[6] != REASON_FAILED {
                    return Err(payload("its reason code"));
                }
                let explanation = Explanation::from_code(header[7]);
                Ok(match header[1] {
                    0xf0 => Self::Failure2 {
                        transaction,
                        explanation,
                    },
                    _ => Self::Failure1 {
                        transaction,
                        explanation,
                    },
                })
            }
            (CHAP, 0x01) => parse_challenge(bytes, transaction).map(Self::Challenge),
            (CHAP, 0x02) => {
                let hash = hash.ok_or(wrong_message())?;
                parse_reply(bytes, transaction, hash).map(Self::Reply)
            }
            (CHAP, 0x03) => parse_success1(bytes, transaction),
            (CHAP, 0x04) => match bytes.len() {
                16.. => Ok(Self::Success2 { transaction }),
                _ => Err(payload("its length")),
            },
            _ => Err(wrong_message()),
        }
    }

    /// Encodes the message.
    ///
    /// # Panics
    ///
    /// If a Negotiate has more than 30 hash functions or groups, or a value does not have the
    /// length of its hash function or group.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Negotiate(message) => encode_negotiate(message),
            Self::Challenge(message) => {
                let mut bytes = header(CHAP, 0x01, message.transaction);
                let hash_bytes = message.hash.bytes();
                assert_eq!(message.challenge.len(), hash_bytes);
                bytes.extend([byte(hash_bytes), 0]);
                bytes.extend([message.hash.code(), message.group.code()]);
                bytes.extend(length(message.public.len()).to_le_bytes());
                bytes.extend(message.sequence.to_le_bytes());
                bytes.extend(&message.challenge);
                bytes.extend(&message.public);
                bytes
            }
            Self::Reply(message) => {
                let mut bytes = header(CHAP, 0x02, message.transaction);
                let hash_bytes = message.response.len();
                bytes.extend([byte(hash_bytes), 0]);
                bytes.extend([u8::from(message.challenge.is_some()), 0]);
                bytes.extend(length(message.public.len()).to_le_bytes());
                bytes.extend(message.sequence.to_le_bytes());
                bytes.extend(&message.response);
                extend_or_zero(&mut bytes, message.challenge.as_deref(), hash_bytes);
                bytes.extend(&message.public);
                bytes
            }
            Self::Success1 {
                transaction,
                hash_bytes,
                response,
            } => {
                let mut bytes = header(CHAP, 0x03, *transaction);
                bytes.extend([byte(*hash_bytes), 0, u8::from(response.is_some())]);
                bytes.extend([0; 7]);
                extend_or_zero(&mut bytes, response.as_deref(), *hash_bytes);
                bytes
            }
            Self::Success2 { transaction } => {
                let mut bytes = header(CHAP, 0x04, *transaction);
                bytes.extend([0; 10]);
                bytes
            }
            Self::Failure1 {
                transaction,
                explanation,
            } => encode_failure(0xf1, *transaction, *explanation),
            Self::Failure2 {
                transaction,
                explanation,
            } => encode_failure(0xf0, *transaction, *explanation),
        }
    }
}

fn parse_negotiate(bytes: &[u8], transaction: u16) -> Result<Negotiate, MessageError> {
    let (head, descriptors) = bytes.split_at(8);
    let descriptors = descriptors.chunks_exact(DESCRIPTOR_BYTES);
    let count = usize::from(head[7]);
    if count == 0 || count > descriptors.len() {
        return Err(payload("its number of protocols"));
    }
    let mut descriptors = descriptors.take(count);
    let chap = descriptors.find(|descriptor| descriptor[0] == PROTOCOL_CHAP);
    let chap = chap.ok_or(MessageError {
        explanation: Explanation::ProtocolNotUsable,
        part: "DH-HMAC-CHAP is not among its protocols",
    })?;
    let (hashes, groups) = (usize::from(chap[2]), usize::from(chap[3]));
    if !(1..=LIST_MAX).contains(&hashes) || !(1..=LIST_MAX).contains(&groups) {
        return Err(payload("its number of hash functions or groups"));
    }
    let (hash_list, group_list) = chap[4..].split_at(LIST_MAX);
    let hashes = hash_list[..hashes].iter().copied();
    let groups = group_list[..groups].iter().copied();
    Ok(Negotiate {
        transaction,
        secure_channel: head[6],
        hashes: hashes.filter_map(Hash::from_code).collect(),
        groups: groups.filter_map(Group::from_code).collect(),
    })
}

fn encode_negotiate(message: &Negotiate) -> Vec<u8> {
    let mut bytes = header(COMMON, 0x00, message.transaction);
    bytes.extend([message.secure_channel, 1]);
    let (hashes, groups) = (message.hashes.len(), message.groups.len());
    bytes.extend([PROTOCOL_CHAP, 0, byte(hashes), byte(groups)]);
    let mut lists = [0; 2 * LIST_MAX];
    let (hash_list, group_list) = lists.split_at_mut(LIST_MAX);
    for (code, hash) in hash_list[..hashes].iter_mut().zip(&message.hashes) {
        *code = hash.code();
    }
    for (code, group) in group_list[..groups].iter_mut().zip(&message.groups) {
        *code = group.code();
    }
    bytes.extend(lists);
    bytes
}

fn parse_challenge(bytes: &[u8], transaction: u16) -> Result<Challenge, MessageError> {
    let (head, values) = values(bytes)?;
    let hash = Hash::from_code(head[8]).ok_or(MessageError {
        explanation: Explanation::HashNotUsable,
        part: "an unknown hash function",
    })?;
    let group = Group::from_code(head[9]).ok_or(MessageError {
        explanation: Explanation::GroupNotUsable,
        part: "an unknown group",
    })?;
    if usize::from(head[6]) != hash.bytes() {
        return Err(payload("its hash length"));
    }
    let (challenge, public) = split(values, hash.bytes(), "its challenge")?;
    Ok(Challenge {
        transaction,
        hash,
        group,
        sequence: sequence(head),
        challenge: challenge.to_vec(),
        public: public_value(head, public)?,
    })
}

fn parse_reply(bytes: &[u8], transaction: u16, hash: Hash) -> Result<Reply, MessageError> {
    let (head, values) = values(bytes)?;
    if usize::from(head[6]) != hash.bytes() {
        return Err(payload("its hash length"));
    }
    let (response, rest) = split(values, hash.bytes(), "its response")?;
    let (challenge, public) = split(rest, hash.bytes(), "its challenge")?;
    Ok(Reply {
        transaction,
        sequence: sequence(head),
        response: response.to_vec(),
        challenge: valid(head[8])?.then(|| challenge.to_vec()),
        public: public_value(head, public)?,
    })
}

fn parse_success1(bytes: &[u8], transaction: u16) -> Result<Message, MessageError> {
    let (head, values) = values(bytes)?;
    let hash_bytes = usize::from(head[6]);
    let response = match valid(head[8])? {
        true => Some(split(values, hash_bytes, "its response")?.0.to_vec()),
        false => None,
    };
    Ok(Message::Success1 {
        transaction,
        hash_bytes,
        response,
    })
}

/// Splits the fixed part off.
fn values(bytes: &[u8]) -> Result<(&[u8; 16], &[u8]), MessageError> {
    bytes.split_first_chunk().ok_or(payload("its length"))
}

fn split<'a>(
    bytes: &'a [u8],
    at: usize,
    part: &'static str,
) -> Result<(&'a [u8], &'a [u8]), MessageError> {
    bytes.split_at_checked(at).ok_or(payload(part))
}

fn valid(flag: u8) -> Result<bool, MessageError> {
    match flag {
        0 | 1 => Ok(flag == 1),
        _ => Err(payload("its flag of a valid value")),
    }
}

fn sequence(head: &[u8; 16]) -> u32 {
    u32::from_le_bytes([head[12], head[13], head[14], head[15]])
}

fn public_value(head: &[u8; 16], bytes: &[u8]) -> Result<Vec<u8>, MessageError> {
    let length = usize::from(u16::from_le_bytes([head[10], head[11]]));
    Ok(split(bytes, length, "its public value")?.0.to_vec())
}

fn encode_failure(id: u8, transaction: u16, explanation: Explanation) -> Vec<u8> {
    let mut bytes = header(COMMON, id, transaction);
    bytes.extend([REASON_FAILED, explanation.code()]);
    bytes
}

fn header(kind: u8, id: u8, transaction: u16) -> Vec<u8> {
    let [low, high] = transaction.to_le_bytes();
    let mut bytes = Vec::with_capacity(MESSAGE_BYTES_MAX);
    bytes.extend([kind, id, 0, 0, low, high]);
    bytes
}

fn extend_or_zero(bytes: &mut Vec<u8>, value: Option<&[u8]>, length: usize) {
    match value {
        Some(value) => {
            assert_eq!(value.len(), length);
            bytes.extend(value);
        }
        None => bytes.resize(bytes.len() + length, 0),
    }
}

fn byte(length: usize) -> u8 {
    u8::try_from(length).expect("at most 64")
}

fn length(length: usize) -> u16 {
    u16::try_from(length).expect("at most 1024")
}

const fn payload(part: &'static str) -> MessageError {
    MessageError {
        explanation: Explanation::IncorrectPayload,
        part,
    }
}

const fn wrong_message() -> MessageError {
    MessageError {
        explanation: Explanation::IncorrectMessage,
        part: "not a message of this step",
    }
}

/// AUTH_TYPE of messages that all protocols have.
const COMMON: u8 = 0;
/// AUTH_TYPE of DH-HMAC-CHAP's messages.
const CHAP: u8 = 1;
/// The protocol identifier of DH-HMAC-CHAP.
const PROTOCOL_CHAP: u8 = 1;
/// The only reason code.
const REASON_FAILED: u8 = 1;
/// Length of a protocol descriptor in bytes.
const DESCRIPTOR_BYTES: usize = 64;
/// Most hash functions, and most groups, of a protocol descriptor.
const LIST_MAX: usize = 30;

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
