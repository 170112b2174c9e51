//! Why an exchange failed.

use super::{Explanation, Group};
use crate::Hash;

/// Why an exchange failed, for the log and the user of the end that noticed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The controller has no secret for the host.
    #[error("there is no secret for this host; add one")]
    NoSecret,
    /// The host's response fits none of its secrets.
    #[error("the host has another secret than the controller")]
    WrongSecret,
    /// The host challenged a controller that has no secret of its own.
    #[error(
        "the host wants the controller to prove itself, but there is no controller secret; add one"
    )]
    NoControllerSecret,
    /// The controller's response does not fit the controller secret.
    #[error(
        "the controller could not prove itself: it has another controller secret, or it is not the \
         controller"
    )]
    WrongController,
    /// The host does not offer DH-HMAC-CHAP.
    #[error("the host does not offer DH-HMAC-CHAP")]
    Protocol,
    /// The host requests to open a secure channel after the exchange.
    #[error(
        "the host requests secure channel concatenation, which is not supported; use TLS with a configured key"
    )]
    SecureChannel,
    /// The peers have no allowed hash function in common.
    #[error("none of the offered hash functions is allowed")]
    NoHash,
    /// The peers have no allowed group in common.
    #[error("none of the offered DH groups is allowed")]
    NoGroup,
    /// The controller chose a hash function that was not offered.
    #[error("the controller chose {}, which was not offered", .0.name())]
    HashNotOffered(Hash),
    /// The controller chose a group that was not offered.
    #[error("the controller chose {}, which was not offered", .0.name())]
    GroupNotOffered(Group),
    /// A part of a message is wrong.
    #[error("the message of the peer is wrong: {0}")]
    Payload(&'static str),
    /// A message that does not belong to this step.
    #[error("the peer sent {got}, not {expected}")]
    Sequence {
        /// The message.
        got: &'static str,
        /// The message of this step.
        expected: &'static str,
    },
    /// The peer ended the exchange.
    #[error("the peer refused at {step}: {explanation}{}", remedy(.step, *.explanation))]
    Refused {
        /// The message to which it answered.
        step: &'static str,
        /// The reason that it gave.
        explanation: Explanation,
    },
    /// The host failed too often.
    #[error("too many failed attempts of this address; wait a minute")]
    TooMany,
}

/// What the reason of the peer usually means.
fn remedy(step: &str, explanation: Explanation) -> &'static str {
    match (step, explanation) {
        ("Success1", Explanation::Failed) => "; it expects another controller secret",
        (_, Explanation::Failed) => {
            "; it has no secret for this host, or another one, or too many attempts failed"
        }
        _ => "",
    }
}

impl Failure {
    /// Returns the reason to say to the peer; nothing if the peer has ended the exchange.
    #[must_use]
    pub fn explanation(self) -> Option<Explanation> {
        Some(match self {
            Self::NoSecret
            | Self::WrongSecret
            | Self::NoControllerSecret
            | Self::WrongController
            | Self::TooMany => Explanation::Failed,
            Self::Protocol => Explanation::ProtocolNotUsable,
            Self::SecureChannel => Explanation::SecureChannelMismatch,
            Self::NoHash | Self::HashNotOffered(_) => Explanation::HashNotUsable,
            Self::NoGroup | Self::GroupNotOffered(_) => Explanation::GroupNotUsable,
            Self::Payload(_) => Explanation::IncorrectPayload,
            Self::Sequence { .. } => Explanation::IncorrectMessage,
            Self::Refused { .. } => return None,
        })
    }

    /// Returns true if a guessed secret is the cause, so that it counts as an attempt.
    #[must_use]
    pub fn is_guess(self) -> bool {
        matches!(self, Self::WrongSecret | Self::NoSecret)
    }
}
