//! The successor's side.

use super::channel::{Channel, Frame};
use super::{Message, Offer, PROTOCOL, address_of};
use crate::limits::TAKEOVER_START;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use target::{Handed, HandedState, Target};

/// Why a running target was not taken over. It serves its hosts as before, unless it has ended.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// There is none.
    #[error("no target to take over listens on {address}: {source}; start without --take-over")]
    NoTarget {
        /// The first address of the configuration.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// The connection to it broke.
    #[error("the running target: {0}")]
    Connection(#[from] io::Error),
    /// It refused, or has something that this process does not.
    #[error("not taken over, the running target serves on: {0}")]
    Refused(String),
    /// It ended before it had handed its connections over.
    #[error("the running target ended before it was taken over; start without --take-over")]
    Ended,
}

/// What the running target offers.
#[derive(Debug)]
pub(crate) struct Taker {
    channel: Channel,
    pub(crate) offer: Offer,
    /// Files, in the order of the offer; the door of take-overs is the last one.
    files: std::vec::IntoIter<OwnedFd>,
}

impl Taker {
    /// Asks the target that listens on `address` for what a successor needs to start.
    ///
    /// # Errors
    /// There is none, or it refuses.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self, TakeOverError> {
        let stream = address_of(address).and_then(|name| UnixStream::connect_addr(&name));
        let stream = stream.map_err(|source| TakeOverError::NoTarget { address, source })?;
        let mut channel = Channel::new(stream)?;
        channel.set_patience(TAKEOVER_START)?;
        channel.tell(&Message::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })?;
        match receive(&mut channel)? {
            Frame {
                message: Message::Offer(offer),
                files,
                ..
            } => Ok(Self {
                channel,
                offer: *offer,
                files: files.into_iter(),
            }),
            other => Err(unexpected(&other.message)),
        }
    }

    /// Returns the next file of the offer.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn file(&mut self) -> Result<OwnedFd, TakeOverError> {
        let missing = || TakeOverError::Refused("a file is missing in its offer".to_owned());
        self.files.next().ok_or_else(missing)
    }

    /// Takes the connections over: `target` serves them when this returns, with the content that
    /// `carry` copies.
    ///
    /// # Errors
    /// Why the running target serves them again.
    pub(crate) fn take(
        mut self,
        target: &Target,
        carry: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), TakeOverError> {
        self.channel.tell(&Message::Ready)?;
        let frame = receive(&mut self.channel)?;
        let Message::State = frame.message else {
            return Err(unexpected(&frame.message));
        };
        let handed = unpack(frame).and_then(|handed| {
            let checked = target.check_handed(&handed);
            checked.map_err(|error| error.to_string())?;
            carry()?;
            Ok(handed)
        });
        let handed = match handed {
            Ok(handed) => handed,
            Err(reason) => return Err(self.refuse(reason)),
        };
        // If this fails, the running target was killed, or has given up: then its message is there.
        let _ = self.channel.tell(&Message::Taken);
        match self.channel.receive() {
            Ok(Some(Frame {
                message: Message::Go,
                ..
            }))
            // It was killed: nobody else has the connections.
            | Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Ok(Some(other)) => return Err(unexpected(&other.message)),
            Err(error) => return Err(error.into()),
        }
        let taken = target.take_over(handed);
        taken.map_err(|error| TakeOverError::Refused(error.to_string()))
    }

    /// Tells the running target why it is not taken over.
    pub(crate) fn refuse(&mut self, reason: String) -> TakeOverError {
        // It may be gone.
        let _ = self.channel.tell(&Message::Refused {
            reason: reason.clone(),
        });
        TakeOverError::Refused(reason)
    }
}

fn unpack(frame: Frame) -> Result<Handed, String> {
    let short = || "the state is incomplete".to_owned();
    let (length, rest) = frame.bytes.split_first_chunk::<8>().ok_or_else(short)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| short())?;
    let (state, rests) = rest.split_at_checked(length).ok_or_else(short)?;
    let state: HandedState = serde_json::from_slice(state).map_err(|error| error.to_string())?;
    let sockets = state.divide(frame.files);
    Handed::join(state, rests, sockets)
}

fn receive(channel: &mut Channel) -> Result<Frame, TakeOverError> {
    channel.receive()?.ok_or(TakeOverError::Ended)
}

fn unexpected(message: &Message) -> TakeOverError {
    TakeOverError::Refused(match message {
        Message::Refused { reason } => reason.clone(),
        other => format!("unexpected message {other:?}"),
    })
}
