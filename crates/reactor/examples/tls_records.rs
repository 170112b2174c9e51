//! Compares records of TLS 1.3 per core: AES-GCM alone, our records, and those of s2n-tls.
//!
//! ```text
//! tls_records [--runs N] [--seconds S]
//! ```
//!
//! Each run encrypts data into the memory of a send, and decrypts it from the memory of a receive into
//! its destination; both are counted. The cases take turns. The numbers are medians in GB/s with
//! (minimum–maximum), and the medians of the ratios of adjacent runs.
#![allow(unsafe_code)] // The callbacks of s2n-tls get pointers.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::task::Poll;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use s2n_tls::config::Config;
use s2n_tls::connection::Connection;
use s2n_tls::enums::{Blinding, Mode, PskHmac};
use s2n_tls::psk::Psk;
use s2n_tls::security::Policy;
use secure::record::{DATA_MAX, HEADER_BYTES, OVERHEAD_BYTES, Opened, Opener, Sealer, Suite};

/// Bytes of one send: a 4 KiB response with its header, a full record, and a 128 KiB transfer.
const SIZES: [usize; 3] = [4096 + 24, DATA_MAX, 128 * 1024 + 24];

fn main() {
    let (runs, seconds) = options();
    for suite in [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384] {
        for size in SIZES {
            let mut alone = Alone::new(suite, size);
            let mut ours = Ours::new(suite, size);
            let mut library = Library::new(suite, size);
            let mut rates = [const { Vec::new() }; 3];
            for _ in 0..runs {
                rates[0].push(rate(size, seconds, || alone.exchange()));
                rates[1].push(rate(size, seconds, || ours.exchange()));
                rates[2].push(rate(size, seconds, || library.exchange()));
            }
            let of_alone = ratio(&rates[1], &rates[0]);
            let of_library = ratio(&rates[1], &rates[2]);
            let [alone, ours, library] = rates.map(|of| shown(of, " GB/s"));
            println!("{}, {size} bytes:", suite.name());
            println!("  AES-GCM alone {alone}; ours {ours}; s2n-tls {library}");
            println!("  ours / alone {of_alone}; ours / s2n-tls {of_library}");
        }
    }
}

fn options() -> (usize, f64) {
    let (mut runs, mut seconds) = (7, 0.3);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().expect("each option has a value");
        match &*name {
            "--runs" => runs = value.parse().expect("--runs takes a number"),
            "--seconds" => seconds = value.parse().expect("--seconds takes a number"),
            _ => panic!("unknown option {name}: see the top of this file"),
        }
    }
    (runs, seconds)
}

/// Returns GB/s of an exchange of `size` bytes.
fn rate(size: usize, seconds: f64, mut exchange: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut count = 0_u32;
    while begin.elapsed() < Duration::from_secs_f64(seconds) {
        for _ in 0..16 {
            exchange();
        }
        count += 16;
    }
    f64::from(count) * size as f64 / begin.elapsed().as_secs_f64() / 1e9
}

fn ratio(ours: &[f64], others: &[f64]) -> String {
    let ratios = ours.iter().zip(others).map(|(a, b)| a / b);
    shown(ratios.collect(), "")
}

fn shown(mut values: Vec<f64>, unit: &str) -> String {
    values.sort_by(f64::total_cmp);
    let (first, last) = (values[0], values[values.len() - 1]);
    format!(
        "{:.2}{unit} ({first:.2}–{last:.2})",
        values[values.len() / 2]
    )
}

/// Bytes of a tag of AES-GCM.
const TAG: usize = 16;

/// The library's AES-GCM in place, in pieces of a record: nothing is copied.
struct Alone {
    key: LessSafeKey,
    data: Vec<u8>,
}

impl Alone {
    fn new(suite: Suite, size: usize) -> Self {
        let (algorithm, key) = match suite {
            Suite::Aes128GcmSha256 => (&AES_128_GCM, &[7; 32][..16]),
            Suite::Aes256GcmSha384 => (&AES_256_GCM, &[7; 32][..]),
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key).expect("the key's length"));
        let data = vec![1; size + size.div_ceil(DATA_MAX) * TAG];
        Self { key, data }
    }

    fn exchange(&mut self) {
        // The same nonce each time: nothing leaves this process.
        let nonce = || Nonce::assume_unique_for_key([0; 12]);
        for piece in self.data.chunks_mut(DATA_MAX + TAG) {
            let (text, tag) = piece.split_at_mut(piece.len() - TAG);
            let sealed = self
                .key
                .seal_in_place_separate_tag(nonce(), Aad::from([0; 5]), text);
            tag.copy_from_slice(sealed.expect("a short piece").as_ref());
            let opened = self.key.open_in_place(nonce(), Aad::from([0; 5]), piece);
            black_box(opened.expect("the right tag"));
        }
    }
}

/// Our records, used as the driver does: one copy before encryption, one after decryption.
struct Ours {
    sealer: Sealer,
    opener: Opener,
    data: Vec<u8>,
    records: Vec<u8>,
    into: Vec<u8>,
}

impl Ours {
    fn new(suite: Suite, size: usize) -> Self {
        let secret = vec![7; suite.secret_bytes()];
        Self {
            sealer: Sealer::new(suite, &secret, 0),
            opener: Opener::new(suite, &secret, 0),
            data: vec![1; size],
            records: vec![0; size + 16 * OVERHEAD_BYTES],
            into: vec![0; size],
        }
    }

    fn exchange(&mut self) {
        let mut rest = &mut self.records[..];
        for piece in self.data.chunks(DATA_MAX) {
            let (record, behind) = rest.split_at_mut(piece.len() + OVERHEAD_BYTES);
            record[HEADER_BYTES..][..piece.len()].copy_from_slice(piece);
            self.sealer.seal(record);
            rest = behind;
        }
        let mut rest = &mut self.records[..];
        for piece in self.into.chunks_mut(DATA_MAX) {
            let (record, behind) = rest.split_at_mut(piece.len() + OVERHEAD_BYTES);
            let Ok(Opened::Data(range)) = self.opener.open(record) else {
                panic!("our own records have data");
            };
            piece.copy_from_slice(&record[range]);
            rest = behind;
        }
        black_box(&self.into);
    }
}

/// Both ends of the library, over memory.
struct Library {
    host: Connection,
    target: Connection,
    wires: Box<Wires>,
    data: Vec<u8>,
    into: Vec<u8>,
}

/// Bytes on their way, from the host and to it.
#[derive(Default)]
struct Wires {
    to_target: Wire,
    to_host: Wire,
}

#[derive(Default)]
struct Wire {
    bytes: Vec<u8>,
    taken: usize,
}

impl Library {
    fn new(suite: Suite, size: usize) -> Self {
        let mut wires = Box::<Wires>::default();
        let mut host = connection(Mode::Client, suite);
        let mut target = connection(Mode::Server, suite);
        let to_target: *mut c_void = (&raw mut wires.to_target).cast();
        let to_host: *mut c_void = (&raw mut wires.to_host).cast();
        for (end, out, into) in [
            (&mut host, to_target, to_host),
            (&mut target, to_host, to_target),
        ] {
            // SAFETY: the wires lie in a box of the value that has the connections, and are not
            // touched while the library runs.
            unsafe { end.set_send_context(out) }.expect("a context");
            // SAFETY: as above.
            unsafe { end.set_receive_context(into) }.expect("a context");
        }
        loop {
            let ready =
                [&mut host, &mut target].map(|end| end.poll_negotiate().map(Result::unwrap));
            if ready.iter().all(Poll::is_ready) {
                break;
            }
        }
        assert_eq!(target.cipher_suite().ok(), Some(suite.name()));
        Self {
            host,
            target,
            wires,
            data: vec![1; size],
            into: vec![0; size],
        }
    }

    fn exchange(&mut self) {
        let mut rest = &self.data[..];
        while !rest.is_empty() {
            let Poll::Ready(Ok(sent)) = self.target.poll_send(rest) else {
                panic!("memory takes all bytes");
            };
            rest = &rest[sent..];
        }
        let mut rest = &mut self.into[..];
        while !rest.is_empty() {
            let Poll::Ready(Ok(received)) = self.host.poll_recv(rest) else {
                panic!("all bytes are there");
            };
            rest = &mut rest[received..];
        }
        black_box((&self.into, &self.wires));
    }
}

fn connection(mode: Mode, suite: Suite) -> Connection {
    let (policy, hmac) = match suite {
        Suite::Aes128GcmSha256 => ("20190801", PskHmac::SHA256),
        Suite::Aes256GcmSha384 => ("20190801", PskHmac::SHA384),
    };
    let mut config = Config::builder();
    config.with_system_certs(false).expect("an option");
    let policy = Policy::from_version(policy).expect("a policy of the library");
    config.set_security_policy(&policy).expect("an option");
    let mut connection = Connection::new(mode);
    connection
        .set_config(config.build().expect("a configuration"))
        .expect("a configuration");
    connection
        .set_blinding(Blinding::SelfService)
        .expect("an option");
    // Records of 16 KiB, as ours.
    connection.prefer_throughput().expect("an option");
    let mut psk = Psk::builder().expect("a key");
    psk.set_identity(b"a host").expect("an identity");
    psk.set_secret(&[7; 32]).expect("a secret");
    psk.set_hmac(hmac).expect("a hash function");
    let psk = psk.build().expect("a key");
    connection.append_psk(&psk).expect("a key");
    connection
        .set_receive_callback(Some(receive))
        .expect("a callback");
    connection
        .set_send_callback(Some(send))
        .expect("a callback");
    connection
}

/// # Safety
/// `context` is a [`Wire`] that is not borrowed, and `out` has room for `len` bytes.
unsafe extern "C" fn receive(context: *mut c_void, out: *mut u8, len: u32) -> c_int {
    // SAFETY: by the contract.
    let wire = unsafe { &mut *context.cast::<Wire>() };
    let left = &wire.bytes[wire.taken..];
    let len = left.len().min(len as usize);
    if len == 0 {
        // SAFETY: it has no conditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the place of this thread's `errno`.
        unsafe { *errno = libc::EAGAIN };
        return -1;
    }
    // SAFETY: `out` has room for `len` bytes, and is the library's own memory.
    unsafe { std::ptr::copy_nonoverlapping(left.as_ptr(), out, len) };
    wire.taken += len;
    if wire.taken == wire.bytes.len() {
        wire.bytes.clear();
        wire.taken = 0;
    }
    c_int::try_from(len).expect("a short piece")
}

/// # Safety
/// `context` is a [`Wire`] that is not borrowed, and `from` has `len` bytes.
unsafe extern "C" fn send(context: *mut c_void, from: *const u8, len: u32) -> c_int {
    // SAFETY: by the contract.
    let wire = unsafe { &mut *context.cast::<Wire>() };
    // SAFETY: by the contract.
    let bytes = unsafe { std::slice::from_raw_parts(from, len as usize) };
    wire.bytes.extend_from_slice(bytes);
    c_int::try_from(len).expect("a short piece")
}
