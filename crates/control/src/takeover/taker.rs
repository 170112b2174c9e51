//! The successor's side.

use super::channel::{Channel, Frame};
use super::{Message, Paused};
use crate::limits::TAKEOVER_START;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};

/// Why a running process was not taken over. It serves its clients as before, unless it has ended.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// There is none.
    #[error("no {what}: {source}; start without --take-over")]
    Nothing {
        /// What was to be taken over.
        what: String,
        /// The reason.
        source: io::Error,
    },
    /// The connection to it broke.
    #[error("the running process, which must have the same user: {0}")]
    Connection(#[from] io::Error),
    /// It refused, or has something that this process does not.
    #[error("not taken over, the running process continues: {0}")]
    Refused(String),
    /// It ended before it had handed its connections over.
    #[error("the running process ended before it was taken over; start without --take-over")]
    Ended,
}

/// What the running process offers.
#[derive(Debug)]
pub struct Taker<O> {
    channel: Channel,
    /// The offer.
    pub offer: O,
    /// Files, in the order of the offer; the door of take-overs is the last one.
    files: std::vec::IntoIter<OwnedFd>,
}

impl<O: DeserializeOwned + Debug> Taker<O> {
    /// Asks the process at the socket `name` for what a successor with this protocol needs to start;
    /// `what` names it in an error.
    ///
    /// # Errors
    /// There is none, or it refuses.
    pub fn connect(
        name: io::Result<UnixAddr>,
        protocol: u32,
        what: impl FnOnce() -> String,
    ) -> Result<Self, TakeOverError> {
        let stream = name.and_then(|name| UnixStream::connect_addr(&name));
        let stream = stream.map_err(|source| TakeOverError::Nothing {
            what: what(),
            source,
        })?;
        let mut channel = Channel::new(stream)?;
        channel.set_patience(TAKEOVER_START)?;
        channel.tell(&Message::<()>::Hello {
            protocol,
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
    pub fn file(&mut self) -> Result<OwnedFd, TakeOverError> {
        let missing = || TakeOverError::Refused("a file is missing in its offer".to_owned());
        self.files.next().ok_or_else(missing)
    }

    /// Has the running process stop, and passes its state to `check`. Returns the result once nobody
    /// else serves its clients.
    ///
    /// # Errors
    /// Why the running process serves them again.
    pub fn take<T>(
        mut self,
        check: impl FnOnce(Paused) -> Result<T, String>,
    ) -> Result<T, TakeOverError> {
        self.channel.tell(&Message::<()>::Ready)?;
        let frame: Frame<Message<O>> = receive(&mut self.channel)?;
        let Message::State = frame.message else {
            return Err(unexpected(&frame.message));
        };
        let paused = Paused {
            bytes: frame.bytes,
            files: frame.files,
        };
        let checked = check(paused).map_err(|reason| self.refuse(reason))?;
        // If this fails, the running process was killed, or has given up: then its message is there.
        let _ = self.channel.tell(&Message::<()>::Taken);
        match self.channel.receive::<Message<O>>() {
            Ok(Some(Frame {
                message: Message::Go,
                ..
            }))
            // It was killed: nobody else has the connections.
            | Ok(None) => Ok(checked),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(checked),
            Ok(Some(other)) => Err(unexpected(&other.message)),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells the running process why it is not taken over.
    pub fn refuse(&mut self, reason: String) -> TakeOverError {
        // It may be gone.
        let _ = self.channel.tell(&Message::<()>::Refused {
            reason: reason.clone(),
        });
        TakeOverError::Refused(reason)
    }
}

fn receive<M: DeserializeOwned>(channel: &mut Channel) -> Result<Frame<M>, TakeOverError> {
    channel.receive()?.ok_or(TakeOverError::Ended)
}

fn unexpected<O: Debug>(message: &Message<O>) -> TakeOverError {
    TakeOverError::Refused(match message {
        Message::Refused { reason } => reason.clone(),
        other => format!("unexpected message {other:?}"),
    })
}
