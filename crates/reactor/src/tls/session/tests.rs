//! Sessions that continue from their packed state.

use super::*;

const SUITES: [Suite; 2] = [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384];

/// A session, and the keys of its peer.
struct Pair {
    session: Session,
    sealer: Sealer,
    opener: Opener,
}

impl Pair {
    fn new(suite: Suite) -> Self {
        let secrets = [1, 2].map(|byte| vec![byte; suite.secret_bytes()]);
        let proven = Proven {
            host_nqn: "nqn.2026-11.io.example:host".to_owned(),
            subsystem_nqn: "nqn.2026-11.io.example:subsystem".to_owned(),
            suite,
        };
        let sealer = Sealer::new(suite, &secrets[0], 3);
        let opener = Opener::new(suite, &secrets[1], 5);
        Self {
            session: Session::new(sealer, opener, proven),
            sealer: Sealer::new(suite, &secrets[1], 5),
            opener: Opener::new(suite, &secrets[0], 3),
        }
    }

    /// Returns a record of the peer.
    fn sealed(&mut self, data: &[u8]) -> Vec<u8> {
        let mut record = vec![0; OVERHEAD_BYTES + data.len()];
        record[HEADER_BYTES..][..data.len()].copy_from_slice(data);
        self.sealer.seal(&mut record);
        record
    }

    /// Returns the KeyUpdate of the peer.
    fn update(&mut self) -> Vec<u8> {
        let mut record = vec![0; MESSAGE_MAX];
        let length = self.sealer.update(&mut record);
        record.truncate(length);
        record
    }

    /// Delivers bytes to the session. Returns their data.
    fn receive(&mut self, bytes: &[u8]) -> Result<Vec<u8>, SessionEnd> {
        let (mut received, mut rest) = (vec![0; RECEIVED_BYTES], vec![0; RECEIVED_BYTES]);
        let begun = self.session.begin(&mut received);
        let received = &mut received[..begun + bytes.len()];
        received[begun..].copy_from_slice(bytes);
        let (_, length) = self.session.open(received, None, &mut rest)?;
        rest.truncate(length);
        Ok(rest)
    }

    /// Sends data to the peer. Returns what it opens.
    fn send(&mut self, data: &[u8]) -> Result<Vec<u8>, RecordError> {
        let mut list = SendList::new();
        list.push_header(data);
        let mut sealed = TlsMemory::default().take();
        self.session
            .seal(&list, &mut ListPosition::default(), &mut sealed);
        let mut bytes = sealed.unsent().to_vec();
        let (mut rest, mut data) = (&mut bytes[..], Vec::new());
        while let Some(length) = record_bytes(rest)? {
            let (record, behind) = rest.split_at_mut(length);
            if let Opened::Data(range) = self.opener.open(record)? {
                data.extend_from_slice(&record[range]);
            }
            rest = behind;
        }
        Ok(data)
    }

    /// Continues in another process.
    fn hand_over(&mut self) {
        let state = self.session.pack();
        let session = Session::unpack(&state).expect("a state");
        assert_eq!(*session.pack(), *state);
        assert_eq!(session.proven(), self.session.proven());
        self.session = session;
    }

    fn works(&mut self) {
        let record = self.sealed(b"to the target");
        assert_eq!(self.receive(&record).expect("a record"), b"to the target");
        assert_eq!(self.send(b"to the host").expect("a record"), b"to the host");
    }
}

#[test]
fn a_session_continues_wherever_the_last_record_is_cut() {
    for suite in SUITES {
        let length = OVERHEAD_BYTES + 9;
        for cut in 0..=length {
            let mut pair = Pair::new(suite);
            pair.works();
            let record = pair.sealed(b"in pieces");
            let mut data = pair.receive(&record[..cut]).expect("a part");
            pair.hand_over();
            data.extend(pair.receive(&record[cut..]).expect("the rest"));
            assert_eq!(data, b"in pieces", "{cut}");
            pair.works();
        }
    }
}

#[test]
fn keys_change_before_and_after_and_across_a_hand_over() {
    for suite in SUITES {
        for cut in 0..=OVERHEAD_BYTES + 5 {
            let mut pair = Pair::new(suite);
            let update = pair.update();
            pair.receive(&update).expect("an update");
            pair.works();
            pair.hand_over();
            pair.works();
            let update = pair.update();
            assert_eq!(update.len(), OVERHEAD_BYTES + 5);
            pair.receive(&update[..cut]).expect("a part");
            pair.hand_over();
            pair.receive(&update[cut..]).expect("the rest");
            pair.works();
            assert_eq!(pair.session.opener.updates(), 2);
        }
    }
}

#[test]
fn another_sequence_number_or_secret_breaks_the_connection() {
    for suite in SUITES {
        let fields = 2 + 8 + suite.secret_bytes();
        for at in [2, 10, fields + 2, fields + 10] {
            let mut pair = Pair::new(suite);
            pair.works();
            let mut state = pair.session.pack();
            state[at] ^= 1;
            pair.session = Session::unpack(&state).expect("a state");
            let record = pair.sealed(b"");
            let received = pair.receive(&record);
            assert_eq!(received.is_ok(), at < fields, "{at}");
            assert_eq!(pair.send(b"data").is_ok(), at >= fields, "{at}");
        }
    }
}

#[test]
fn a_state_that_is_incomplete_or_impossible_is_refused() {
    for suite in SUITES {
        let pair = Pair::new(suite);
        let state = pair.session.pack();
        // Without a partial record, the names are last.
        for length in 0..state.len() {
            assert!(Session::unpack(&state[..length]).is_none(), "{length}");
        }
        let too_long = [&state[..], &[0; RECORD_MAX]].concat();
        assert!(Session::unpack(&too_long).is_none());
        let suites = [0, 2 + 8 + suite.secret_bytes()];
        let sequences = suites.map(|at| at + 2 + 7);
        for at in suites.into_iter().chain(sequences) {
            let mut wrong = state.clone();
            wrong[at] = 0xff;
            assert!(Session::unpack(&wrong).is_none(), "{at}");
        }
    }
}
