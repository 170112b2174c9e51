//! DH-HMAC-CHAP: messages of a host without the secret, in any order, with bytes changed on the way.

use base::Prng;
use secure::chap::{
    ControllerExchange, Group, HostExchange, HostStep, MESSAGE_BYTES_MAX, Message, Names, Progress,
    Secret,
};
use secure::{ChapPolicy, Hash, HostKeys, KeyRing};
use std::sync::Arc;

fn names() -> Names {
    Names {
        hostnqn: "nqn.2026-11.io.example:host".to_owned(),
        subnqn: "nqn.2026-11.io.switchyard:fuzz".to_owned(),
    }
}

fn secret(byte: u8) -> Secret {
    Secret::new(Some(Hash::Sha256), &[byte; 32]).expect("32 bytes")
}

/// Both ends of an exchange, and the rest of the input.
struct Ends<'a> {
    target: ControllerExchange,
    host: Option<HostExchange>,
    random: Prng,
    rest: &'a [u8],
}

/// Runs a target's exchanges on any messages.
///
/// # Panics
/// A host without the secret is authenticated, or a response is longer than a message may be.
pub fn chap(input: &[u8]) {
    let any = HostKeys {
        chap: vec![secret(1)],
        controller: Some(secret(2)),
        ..HostKeys::default()
    };
    let policy = ChapPolicy {
        groups: vec![Group::Null],
        ..ChapPolicy::default()
    };
    let keys = KeyRing {
        any,
        policy,
        ..KeyRing::default()
    };
    let mut ends = Ends {
        target: ControllerExchange::new(names(), Arc::new(keys)),
        host: None,
        random: Prng::from_seed(1),
        rest: input,
    };
    while let Some(choice) = ends.byte() {
        ends.step(choice);
    }
}

impl Ends<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn step(&mut self, choice: u8) {
        match choice % 4 {
            0 => {
                let length = usize::from(choice).min(self.rest.len());
                let (message, rest) = self.rest.split_at(length);
                self.rest = rest;
                self.send(message.to_vec());
            }
            1 => {
                let controller = (choice & 4 != 0).then(|| secret(2));
                let (host, message) = HostExchange::begin(names(), secret(3), controller, 7);
                self.host = Some(host);
                self.send_changed(message);
            }
            2 => self.respond(),
            _ => {
                let message = Message::Success2 { transaction: 7 };
                self.send_changed(message.encode());
            }
        }
    }

    /// Sends a message, of which the input may change a byte.
    fn send_changed(&mut self, mut message: Vec<u8>) {
        let (at, change) = (self.byte().unwrap_or(0), self.byte().unwrap_or(0));
        let at = usize::from(at) % message.len();
        message[at] ^= change;
        self.send(message);
    }

    fn send(&mut self, message: Vec<u8>) {
        let progress = match self.target.receive(&message) {
            Progress::Compute(job) => {
                let random = &mut self.random;
                self.target
                    .computed(job.run(&mut |bytes| random.fill(bytes)))
            }
            progress => progress,
        };
        assert_stranger(&progress);
    }

    /// Gives the host the response that is due, and the target the host's answer.
    fn respond(&mut self) {
        let Some((response, progress)) = self.target.response() else {
            return;
        };
        assert!(response.len() <= MESSAGE_BYTES_MAX, "{}", response.len());
        assert_stranger(&progress);
        let Some(host) = &mut self.host else {
            return;
        };
        let mut step = host.receive(&response);
        if let HostStep::Compute(job) = step {
            let random = &mut self.random;
            step = host.computed(job.run(&mut |bytes| random.fill(bytes)));
        }
        match step {
            HostStep::Send(message) | HostStep::Failed(_, Some(message)) => {
                self.send_changed(message);
            }
            _ => {}
        }
    }
}

fn assert_stranger(progress: &Progress) {
    let accepted = matches!(progress, Progress::Authenticated);
    assert!(!accepted, "a host without the secret is authenticated");
}
