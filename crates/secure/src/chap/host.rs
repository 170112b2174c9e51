//! An exchange from the host's side.

use core::fmt;
use core::mem;

use base::mutation::{self, Mutation};
use zeroize::Zeroizing;

use super::job::{Computed, Response, Work};
use super::{Challenge, Explanation, Failure, Group, Job, JobResult, Message, Names, Negotiate};
use super::{Reply, Secret};
use crate::Hash;
use crate::hash::equal;

/// One exchange, from the host's side.
///
/// Owns no I/O: send what [`begin`](Self::begin) and the [steps](HostStep) return by Authentication
/// Send, and pass the data of Authentication Receive to [`receive`](Self::receive).
pub struct HostExchange {
    names: Names,
    secret: Secret,
    controller: Option<Secret>,
    transaction: u16,
    state: State,
}

enum State {
    /// Challenge of the controller is awaited.
    Challenge,
    /// A job computes the reply.
    Computing,
    /// Success1 of the controller is awaited.
    Success1 {
        hash: Hash,
        /// The response that proves the controller.
        expected: Option<Zeroizing<Vec<u8>>>,
    },
    /// The exchange has ended.
    Ended,
}

impl fmt::Debug for HostExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostExchange")
            .field("transaction", &self.transaction)
            .finish_non_exhaustive()
    }
}

/// The next step of the host.
#[derive(Debug)]
pub enum HostStep {
    /// Run the job, and pass its result to [`HostExchange::computed`].
    Compute(Job),
    /// Send the message, then receive the next.
    Send(Vec<u8>),
    /// The host is authenticated, and so is the controller if it was challenged. Send the message,
    /// if there is one.
    Authenticated(Option<Vec<u8>>),
    /// The exchange has failed. Send the message, if there is one, and end the connection.
    Failed(Failure, Option<Vec<u8>>),
}

impl HostExchange {
    /// Begins an exchange. Returns it with the message to send: Negotiate. The controller must prove
    /// itself if there is a `controller` secret. `transaction` should differ from that of the
    /// association's last exchanges.
    #[must_use]
    pub fn begin(
        names: Names,
        secret: Secret,
        controller: Option<Secret>,
        transaction: u16,
    ) -> (Self, Vec<u8>) {
        let negotiate = Negotiate {
            transaction,
            secure_channel: 0,
            hashes: Hash::ALL.to_vec(),
            groups: Group::ALL.to_vec(),
        };
        let exchange = Self {
            names,
            secret,
            controller,
            transaction,
            state: State::Challenge,
        };
        (exchange, Message::Negotiate(negotiate).encode())
    }

    /// Returns the name of the awaited message.
    #[must_use]
    pub fn awaits(&self) -> &'static str {
        match self.state {
            State::Challenge | State::Computing => "Challenge",
            State::Success1 { .. } | State::Ended => "Success1",
        }
    }

    /// Handles the data of an Authentication Receive command.
    pub fn receive(&mut self, bytes: &[u8]) -> HostStep {
        let awaited = self.awaits();
        let message = match Message::parse(bytes, None) {
            Ok(message) => message,
            Err(error) => {
                return self.fail(match error.explanation {
                    Explanation::IncorrectMessage => Failure::Sequence {
                        got: "an unknown message",
                        expected: awaited,
                    },
                    _ => Failure::Payload(error.part),
                });
            }
        };
        if message.transaction() != self.transaction {
            return self.fail(Failure::Payload("its transaction identifier"));
        }
        let got = message.name();
        match (mem::replace(&mut self.state, State::Ended), message) {
            (State::Challenge, Message::Challenge(challenge)) => self.challenged(challenge),
            (
                State::Success1 { hash, expected },
                Message::Success1 {
                    hash_bytes,
                    response,
                    ..
                },
            ) => {
                if hash_bytes != hash.bytes() {
                    return self.fail(Failure::Payload("its hash length"));
                }
                self.succeeded(expected.as_deref(), response.as_deref())
            }
            (state, Message::Failure1 { explanation, .. }) => {
                let step = match state {
                    State::Success1 { .. } => "Reply",
                    _ => "Negotiate",
                };
                HostStep::Failed(Failure::Refused { step, explanation }, None)
            }
            _ => self.fail(Failure::Sequence {
                got,
                expected: awaited,
            }),
        }
    }

    fn challenged(&mut self, challenge: Challenge) -> HostStep {
        self.state = State::Computing;
        let response = Response {
            names: self.names.clone(),
            challenge,
            secret: self.secret.clone(),
            controller: self.controller.clone(),
        };
        HostStep::Compute(Job(Work::Reply(Box::new(response))))
    }

    fn succeeded(&mut self, expected: Option<&Vec<u8>>, response: Option<&[u8]>) -> HostStep {
        let Some(expected) = expected else {
            return HostStep::Authenticated(None);
        };
        let is_right = response.is_some_and(|response| equal(expected, response));
        if !is_right && !mutation::active(Mutation::ChapControllerNotChecked) {
            return self.fail(Failure::WrongController);
        }
        let message = Message::Success2 {
            transaction: self.transaction,
        };
        HostStep::Authenticated(Some(message.encode()))
    }

    /// Continues with the result of the job.
    pub fn computed(&mut self, result: JobResult) -> HostStep {
        let Computed::Reply { reply, hash } = result.0 else {
            return self.fail(Failure::Payload("the result of another job"));
        };
        match reply {
            Ok((reply, expected)) => {
                self.state = State::Success1 { hash, expected };
                HostStep::Send(encoded(reply))
            }
            Err(failure) => self.fail(failure),
        }
    }

    fn fail(&mut self, failure: Failure) -> HostStep {
        self.state = State::Ended;
        let message = failure.explanation().map(|explanation| {
            let message = Message::Failure2 {
                transaction: self.transaction,
                explanation,
            };
            message.encode()
        });
        HostStep::Failed(failure, message)
    }
}

fn encoded(reply: Reply) -> Vec<u8> {
    Message::Reply(reply).encode()
}
