//! An exchange from the controller's side.

use core::mem;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::job::{Computed, Verification, Work};
use super::{
    Challenge, Explanation, Failure, Group, Job, JobResult, Message, Names, Negotiate, Reply,
    Secret,
};
use crate::{Hash, KeyRing};

/// Hash functions in the controller's order of preference: all cost the same.
const HASHES: [Hash; 3] = [Hash::Sha512, Hash::Sha384, Hash::Sha256];

/// Groups in the controller's order of preference: the least with 128 bits of strength first,
/// because the cost of the larger ones delays all hosts that return after a restart.
const GROUPS: [Group; 6] = [
    Group::Ffdhe3072,
    Group::Ffdhe4096,
    Group::Ffdhe6144,
    Group::Ffdhe8192,
    Group::Ffdhe2048,
    Group::Null,
];

/// The exchanges of one queue, from the controller's side.
///
/// Owns no I/O: give it the data of Authentication Send commands, and answer Authentication Receive
/// commands with [`response`](Self::response). A Negotiate begins a new exchange at any time.
#[derive(Debug)]
pub struct ControllerExchange {
    names: Names,
    keys: Arc<KeyRing>,
    state: State,
    /// The secret of the host's last correct response.
    proof: Option<Secret>,
}

/// The state of an exchange, by the message that is due.
enum State {
    /// No exchange: Negotiate of the host.
    Negotiate,
    /// A job computes the challenge.
    ComputingChallenge,
    /// The challenge is due, then the host's Reply.
    Reply {
        challenge: Challenge,
        exponent: Zeroizing<Vec<u8>>,
    },
    /// A job verifies the reply to this challenge.
    Verifying { hash: Hash, transaction: u16 },
    /// Success1 is due. If the host challenged the controller, Success2 follows.
    Success1 {
        transaction: u16,
        hash: Hash,
        response: Option<Zeroizing<Vec<u8>>>,
    },
    /// Failure1 is due.
    Failure1 { transaction: u16, failure: Failure },
}

impl State {
    /// Returns the name of the host's next message.
    fn awaits(&self) -> &'static str {
        match self {
            Self::Reply { .. } => "Reply",
            Self::Success1 { .. } => "Success2",
            _ => "Negotiate",
        }
    }
}

impl core::fmt::Debug for State {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Negotiate => "Negotiate",
            Self::ComputingChallenge => "ComputingChallenge",
            Self::Reply { .. } => "Reply",
            Self::Verifying { .. } => "Verifying",
            Self::Success1 { .. } => "Success1",
            Self::Failure1 { .. } => "Failure1",
        })
    }
}

/// Progress of an exchange.
#[derive(Debug)]
pub enum Progress {
    /// The exchange goes on with the host's next command.
    Continue,
    /// Run the job, and pass its result to [`ControllerExchange::computed`] before the command is
    /// answered.
    Compute(Job),
    /// The host is authenticated.
    Authenticated,
    /// The exchange has failed. Unless the host has ended it, the next response says so.
    Failed(Failure),
}

impl ControllerExchange {
    /// Makes the exchanges of a queue between a host and a subsystem.
    #[must_use]
    pub fn new(names: Names, keys: Arc<KeyRing>) -> Self {
        Self {
            names,
            keys,
            state: State::Negotiate,
            proof: None,
        }
    }

    /// Returns the names that the exchanges are bound to.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Replaces the keys; an exchange in progress is verified with these.
    pub fn set_keys(&mut self, keys: Arc<KeyRing>) {
        self.keys = keys;
    }

    /// Returns true if a response is due.
    #[must_use]
    pub fn has_response(&self) -> bool {
        matches!(
            self.state,
            State::Reply { .. } | State::Success1 { .. } | State::Failure1 { .. }
        )
    }

    /// Returns the number of bytes of the response that is due.
    #[must_use]
    pub fn response_bytes(&self) -> Option<usize> {
        Some(self.message()?.encode().len())
    }

    /// Returns the secret that an authenticated host has used.
    #[must_use]
    pub fn proof(&self) -> Option<&Secret> {
        self.proof.as_ref()
    }

    /// Returns the failure that the next response reports.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        match &self.state {
            State::Failure1 { failure, .. } => Some(*failure),
            _ => None,
        }
    }

    /// Handles the data of an Authentication Send command.
    pub fn receive(&mut self, bytes: &[u8]) -> Progress {
        let hash = match &self.state {
            State::Reply { challenge, .. } => Some(challenge.hash),
            _ => None,
        };
        let message = match Message::parse(bytes, hash) {
            Ok(message) => message,
            Err(error) => {
                let transaction = bytes
                    .get(4..6)
                    .map_or(0, |id| u16::from_le_bytes([id[0], id[1]]));
                let failure = match error.explanation {
                    Explanation::ProtocolNotUsable => Failure::Protocol,
                    Explanation::IncorrectMessage => Failure::Sequence {
                        got: "an unexpected message",
                        expected: self.state.awaits(),
                    },
                    _ => Failure::Payload(error.part),
                };
                return self.fail(transaction, failure);
            }
        };
        let got = message.name();
        match (mem::replace(&mut self.state, State::Negotiate), message) {
            (_, Message::Negotiate(negotiate)) => self.negotiate(&negotiate),
            (
                State::Reply {
                    challenge,
                    exponent,
                },
                Message::Reply(reply),
            ) => self.verify(challenge, exponent, reply),
            (
                State::Success1 {
                    transaction,
                    response: Some(_),
                    ..
                },
                Message::Success2 { transaction: other },
            ) if transaction == other => Progress::Authenticated,
            (state, Message::Failure2 { explanation, .. }) => {
                let step = match state {
                    State::Success1 { .. } => "Success1",
                    _ => "Challenge",
                };
                Progress::Failed(Failure::Refused { step, explanation })
            }
            (state, message) => {
                let expected = state.awaits();
                let transaction = message.transaction();
                self.fail(transaction, Failure::Sequence { got, expected })
            }
        }
    }

    /// Leaves the mathematics of a Reply to the caller.
    fn verify(
        &mut self,
        challenge: Challenge,
        exponent: Zeroizing<Vec<u8>>,
        reply: Reply,
    ) -> Progress {
        if reply.transaction != challenge.transaction {
            let failure = Failure::Payload("its transaction identifier");
            return self.fail(reply.transaction, failure);
        }
        self.state = State::Verifying {
            hash: challenge.hash,
            transaction: challenge.transaction,
        };
        let verification = Verification {
            names: self.names.clone(),
            challenge,
            exponent,
            reply,
            secrets: self.keys.chap(&self.names.hostnqn).to_vec(),
            controller: self.keys.controller(&self.names.hostnqn).cloned(),
        };
        Progress::Compute(Job(Work::Verify(Box::new(verification))))
    }

    fn negotiate(&mut self, negotiate: &Negotiate) -> Progress {
        let transaction = negotiate.transaction;
        let policy = &self.keys.policy;
        let hash = HASHES
            .into_iter()
            .find(|hash| negotiate.hashes.contains(hash) && policy.hashes.contains(hash));
        let group = GROUPS
            .into_iter()
            .find(|group| negotiate.groups.contains(group) && policy.groups.contains(group));
        let failure = match (hash, group) {
            _ if negotiate.secure_channel != 0 => Failure::SecureChannel,
            (None, _) => Failure::NoHash,
            (_, None) => Failure::NoGroup,
            (Some(hash), Some(group)) => {
                self.state = State::ComputingChallenge;
                return Progress::Compute(Job(Work::Challenge {
                    transaction,
                    hash,
                    group,
                }));
            }
        };
        self.fail(transaction, failure)
    }

    /// Continues with the result of the job.
    pub fn computed(&mut self, result: JobResult) -> Progress {
        match (mem::replace(&mut self.state, State::Negotiate), result.0) {
            (
                State::ComputingChallenge,
                Computed::Challenge {
                    challenge,
                    exponent,
                },
            ) => {
                self.state = State::Reply {
                    challenge,
                    exponent,
                };
                Progress::Continue
            }
            (State::Verifying { hash, transaction }, Computed::Verified(verified)) => {
                match verified {
                    Ok((proof, response)) => {
                        self.proof = Some(proof);
                        self.state = State::Success1 {
                            transaction,
                            hash,
                            response,
                        };
                        Progress::Continue
                    }
                    Err(failure) => self.fail(transaction, failure),
                }
            }
            // The host has begun another exchange meanwhile.
            (state, _) => {
                self.state = state;
                Progress::Continue
            }
        }
    }

    /// Returns the data for an Authentication Receive command, and the progress that it brings;
    /// nothing if none is due.
    pub fn response(&mut self) -> Option<(Vec<u8>, Progress)> {
        let message = self.message()?;
        let progress = match &self.state {
            State::Success1 { response: None, .. } => Progress::Authenticated,
            State::Failure1 { failure, .. } => Progress::Failed(*failure),
            // The host replies, or first accepts or refuses the controller.
            _ => Progress::Continue,
        };
        if !matches!(progress, Progress::Continue) {
            self.state = State::Negotiate;
        }
        Some((message.encode(), progress))
    }

    /// Returns the message that is due.
    fn message(&self) -> Option<Message> {
        Some(match &self.state {
            State::Reply { challenge, .. } => Message::Challenge(challenge.clone()),
            State::Success1 {
                transaction,
                hash,
                response,
            } => Message::Success1 {
                transaction: *transaction,
                hash_bytes: hash.bytes(),
                response: response.as_ref().map(|response| response.to_vec()),
            },
            State::Failure1 {
                transaction,
                failure,
            } => Message::Failure1 {
                transaction: *transaction,
                explanation: failure.explanation()?,
            },
            _ => return None,
        })
    }

    fn fail(&mut self, transaction: u16, failure: Failure) -> Progress {
        self.state = State::Failure1 {
            transaction,
            failure,
        };
        Progress::Continue
    }
}
