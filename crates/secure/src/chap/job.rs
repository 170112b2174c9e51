//! The mathematics of an exchange, and its results.

use core::fmt;

use base::mutation::{self, Mutation};
use zeroize::Zeroizing;

use super::{
    Challenge, Failure, Group, Names, Reply, Secret, Terms, augmented, controller_response,
    host_response,
};
use crate::Hash;
use crate::hash::equal;

/// A source of random bytes fit for keys: fills the slice.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// A step of an exchange that computes. Without a group it takes some microseconds; with
/// ffdhe8192 tens of milliseconds.
pub struct Job(pub(super) Work);

/// What a [`Job`] has computed, for its exchange.
pub struct JobResult(pub(super) Computed);

/// The kinds of jobs.
pub(super) enum Work {
    /// Of the controller: makes a challenge.
    Challenge {
        transaction: u16,
        hash: Hash,
        group: Group,
    },
    /// Of the controller: checks the host's response, and makes the controller's.
    Verify(Box<Verification>),
    /// Of the host: responds to a challenge, and makes one.
    Reply(Box<Response>),
}

/// Input of [`Work::Verify`].
pub(super) struct Verification {
    pub(super) names: Names,
    pub(super) challenge: Challenge,
    pub(super) exponent: Zeroizing<Vec<u8>>,
    pub(super) reply: Reply,
    pub(super) secrets: Vec<Secret>,
    pub(super) controller: Option<Secret>,
}

/// Input of [`Work::Reply`].
pub(super) struct Response {
    pub(super) names: Names,
    pub(super) challenge: Challenge,
    pub(super) secret: Secret,
    pub(super) controller: Option<Secret>,
}

/// The results of the kinds of jobs.
pub(super) enum Computed {
    Challenge {
        challenge: Challenge,
        exponent: Zeroizing<Vec<u8>>,
    },
    Verified(Result<Verified, Failure>),
    /// The reply, and the response expected of the controller.
    Reply {
        hash: Hash,
        reply: Result<Replied, Failure>,
    },
}

/// The host's secret, and the controller's response if it was challenged.
pub(super) type Verified = (Secret, Option<Zeroizing<Vec<u8>>>);

/// The host's reply, and the response expected of the controller.
pub(super) type Replied = (Reply, Option<Zeroizing<Vec<u8>>>);

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

impl JobResult {
    /// Returns the failure of a verification.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        match &self.0 {
            Computed::Verified(Err(failure)) => Some(*failure),
            _ => None,
        }
    }
}

impl fmt::Debug for JobResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobResult").finish_non_exhaustive()
    }
}

impl Job {
    /// Returns true if it takes milliseconds, so that no thread that carries data may run it.
    #[must_use]
    pub fn is_heavy(&self) -> bool {
        let group = match &self.0 {
            Work::Challenge { group, .. } => *group,
            Work::Verify(work) => work.challenge.group,
            Work::Reply(work) => work.challenge.group,
        };
        group != Group::Null
    }

    /// Returns true if it tells a host with a wrong secret that it is wrong.
    #[must_use]
    pub fn verifies(&self) -> bool {
        matches!(self.0, Work::Verify(_))
    }

    /// Ends a verification with this failure, without computing.
    #[must_use]
    pub fn refuse(failure: Failure) -> JobResult {
        JobResult(Computed::Verified(Err(failure)))
    }

    /// Computes.
    #[must_use]
    pub fn run(self, random: Random<'_>) -> JobResult {
        JobResult(match self.0 {
            Work::Challenge {
                transaction,
                hash,
                group,
            } => {
                let exponent = random_bytes(random, group.exponent_bytes());
                let challenge = Challenge {
                    transaction,
                    hash,
                    group,
                    sequence: random_sequence(random),
                    challenge: challenge(random, hash),
                    public: group.public(&exponent),
                };
                Computed::Challenge {
                    challenge,
                    exponent,
                }
            }
            Work::Verify(work) => Computed::Verified(verify(&work)),
            Work::Reply(work) => Computed::Reply {
                hash: work.challenge.hash,
                reply: reply(&work, random),
            },
        })
    }
}

fn challenge(random: Random<'_>, hash: Hash) -> Vec<u8> {
    if mutation::active(Mutation::ChapChallengeReused) {
        return vec![0; hash.bytes()];
    }
    random_bytes(random, hash.bytes()).to_vec()
}

fn verify(work: &Verification) -> Result<Verified, Failure> {
    let (challenge, reply) = (&work.challenge, &work.reply);
    let (hash, group) = (challenge.hash, challenge.group);
    let shared = group.shared(&work.exponent, &reply.public);
    let shared = shared.ok_or(Failure::Payload("the host's public value"))?;
    let terms = Terms {
        hash,
        transaction: challenge.transaction,
        sequence: challenge.sequence,
    };
    let augmented_challenge = augmented(hash, &shared, &challenge.challenge);
    // All of them, so that the time says nothing.
    let fitting = work.secrets.iter().filter(|secret| {
        let expected = host_response(terms, secret, &augmented_challenge, &work.names);
        equal(&expected, &reply.response) || mutation::active(Mutation::ChapResponseNotCompared)
    });
    let Some(proof) = fitting.fold(None, |_, secret| Some(secret)) else {
        return Err(match work.secrets.is_empty() {
            true => Failure::NoSecret,
            false => Failure::WrongSecret,
        });
    };
    let Some(of_host) = &reply.challenge else {
        return Ok((proof.clone(), None));
    };
    let secret = work.controller.as_ref();
    let secret = secret.ok_or(Failure::NoControllerSecret)?;
    let terms = Terms {
        sequence: reply.sequence,
        ..terms
    };
    let of_host = augmented(hash, &shared, of_host);
    let response = controller_response(terms, secret, &of_host, &work.names);
    Ok((proof.clone(), Some(response)))
}

fn reply(work: &Response, random: Random<'_>) -> Result<Replied, Failure> {
    let challenge = &work.challenge;
    let (hash, group) = (challenge.hash, challenge.group);
    let exponent = random_bytes(random, group.exponent_bytes());
    let shared = group.shared(&exponent, &challenge.public);
    let shared = shared.ok_or(Failure::Payload("the controller's public value"))?;
    let terms = Terms {
        hash,
        transaction: challenge.transaction,
        sequence: challenge.sequence,
    };
    let of_controller = augmented(hash, &shared, &challenge.challenge);
    let response = host_response(terms, &work.secret, &of_controller, &work.names);
    let mut reply = Reply {
        transaction: challenge.transaction,
        sequence: 0,
        response: response.to_vec(),
        challenge: None,
        public: group.public(&exponent),
    };
    let expected = work.controller.as_ref().map(|secret| {
        let own = random_bytes(random, hash.bytes());
        reply.sequence = random_sequence(random);
        reply.challenge = Some(own.to_vec());
        let terms = Terms {
            sequence: reply.sequence,
            ..terms
        };
        let own = augmented(hash, &shared, &own);
        controller_response(terms, secret, &own, &work.names)
    });
    Ok((reply, expected))
}

fn random_bytes(random: Random<'_>, length: usize) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(vec![0; length]);
    random(&mut bytes);
    bytes
}

/// A sequence number; 0 means none.
fn random_sequence(random: Random<'_>) -> u32 {
    let mut bytes = [0; 4];
    random(&mut bytes);
    u32::from_le_bytes(bytes).max(1)
}
