//! The host's side of a connect: its keys, one after the other.

use super::error::TlsError;
use super::handshake::{Handshake, Shaken};
use super::peer::Peer;
use super::session::Session;
use super::side::Client;
use base::mutation::{self, Mutation};
use std::sync::Arc;
use std::task::{Poll, ready};

/// The handshakes of a connect: one per key, each on a connection of its own, because a peer that
/// does not know an identity ends the connection.
#[derive(Debug)]
pub struct Attempts {
    client: Arc<Client>,
    /// Number of the attempt, from 0.
    number: usize,
    /// The index of its key, and its handshake once that has begun.
    current: Option<(usize, Handshake)>,
    /// The error of earlier attempts that says most.
    before: Option<TlsError>,
}

impl Attempts {
    /// Creates the first attempt.
    #[must_use]
    pub const fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            number: 0,
            current: None,
            before: None,
        }
    }

    /// Returns true once the handshake of this attempt has begun.
    pub(crate) const fn has_begun(&self) -> bool {
        self.current.is_some()
    }

    /// Begins or continues this attempt on its connection, with the bytes that are there. After the
    /// end it must not be called again.
    ///
    /// # Errors The reason of the failure; the [next key](Self::try_next) may succeed.
    ///
    /// # Panics If there is no attempt.
    pub fn advance(&mut self, peer: &mut dyn Peer) -> Poll<Result<Box<Session>, TlsError>> {
        let (index, handshake) = match &mut self.current {
            Some(current) => current,
            none => {
                let key = self.client.attempt(self.number);
                let (index, psk) = key.expect("each attempt has a key");
                none.insert((index, Handshake::connect(psk)?))
            }
        };
        Poll::Ready(match ready!(handshake.advance(peer))? {
            Shaken::Secured(session) => {
                self.client.worked(*index);
                Ok(session)
            }
            Shaken::Clear => Err(TlsError::NotTls),
        })
    }

    /// Records that this attempt failed, and prepares the one with the next key, on a new
    /// connection.
    ///
    /// # Errors The failure that says most, if no further key may succeed.
    pub fn try_next(&mut self, error: TlsError) -> Result<(), TlsError> {
        if !error.is_about_keys() {
            return Err(error);
        }
        match &self.before {
            Some(earlier) if earlier.says() >= error.says() => {}
            _ => self.before = Some(error),
        }
        let is_last = self.client.attempt(self.number + 1).is_none();
        if is_last || mutation::active(Mutation::TlsKeyNotTried) {
            return Err(self.failure());
        }
        self.number += 1;
        self.current = None;
        Ok(())
    }

    /// Returns the failure so far that says most.
    #[must_use]
    pub fn failure(&self) -> TlsError {
        self.before.clone().unwrap_or(TlsError::Closed)
    }
}
