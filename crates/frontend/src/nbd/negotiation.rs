//! The handshake: a client chooses an export and the form of requests and replies.
//! `[NBD "Newstyle negotiation"]`
//!
//! Bytes in, bytes out, without a socket. Everything that a client can make it store is bounded: an
//! option's data by [`NBD_OPTION_BYTES_MAX`], the number of options by [`NBD_OPTIONS_MAX`].

use super::export::{ALLOCATION, ALLOCATION_CONTEXT, Export};
use super::protocol::{
    FIXED_NEWSTYLE, Form, NBD_MAGIC, NO_ZEROES, OPTION_MAGIC, Reader, Session, Writer, info,
    option, reply,
};
use crate::limits::{NBD_OPTION_BYTES_MAX, NBD_OPTIONS_MAX};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Bytes of an option's header: magic, option, length.
const OPTION_HEADER_BYTES: usize = 16;

/// The result of one step of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeStep {
    /// More bytes are needed.
    More,
    /// The client may begin TLS once the output is sent; options follow inside TLS.
    StartTls,
    /// The client chose an export: requests follow.
    Begin(Session),
    /// Close the connection once the output is sent.
    Close,
}

/// State of encryption, as seen by the options. `[NBD "TLS support"]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encryption {
    /// The server has no certificate.
    Unavailable,
    /// The client may begin TLS.
    Offered,
    /// The client must begin TLS before anything else.
    Required,
    /// Options arrive through TLS.
    InForce,
}

/// A handshake.
#[derive(Debug)]
pub(super) struct Negotiation {
    exports: Arc<[Export]>,
    encryption: Encryption,
    progress: Progress,
}

/// The result of the client's options so far, in plain text or inside TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// The client's flags have arrived.
    greeted: bool,
    no_zeroes: bool,
    form: Form,
    /// The export for which `base:allocation` was selected.
    allocation: Option<usize>,
    options: u32,
}

impl Negotiation {
    /// Creates a handshake; `output` starts with the server's greeting.
    pub(super) fn new(exports: Arc<[Export]>, encryption: Encryption, output: &mut Writer) -> Self {
        output.u64(NBD_MAGIC).u64(OPTION_MAGIC);
        output.u16(FIXED_NEWSTYLE | NO_ZEROES);
        Self {
            exports,
            encryption,
            progress: Progress {
                greeted: false,
                no_zeroes: false,
                form: Form::Simple,
                allocation: None,
                options: 0,
            },
        }
    }

    /// Returns the result of the options so far, for a successor.
    pub(super) const fn progress(&self) -> Progress {
        self.progress
    }

    /// Continues a predecessor's handshake in plain text.
    pub(super) const fn resume(&mut self, progress: Progress) {
        self.progress = progress;
    }

    /// Records that TLS has begun. Discards everything negotiated in plain text: an attacker may
    /// have sent it.
    pub(super) fn begin_tls(&mut self) {
        self.encryption = Encryption::InForce;
        self.progress.form = Form::Simple;
        self.progress.allocation = None;
    }

    /// Takes one step with the first bytes of `input`. Returns the number of bytes consumed; 0 if
    /// more are needed.
    pub(super) fn step(&mut self, input: &[u8], output: &mut Writer) -> (usize, HandshakeStep) {
        let mut reader = Reader::new(input);
        if !self.progress.greeted {
            let Some(flags) = reader.u32() else {
                return (0, HandshakeStep::More);
            };
            self.progress.greeted = true;
            let known = u32::from(FIXED_NEWSTYLE | NO_ZEROES);
            if flags & !known != 0 || flags & u32::from(FIXED_NEWSTYLE) == 0 {
                return (4, HandshakeStep::Close);
            }
            self.progress.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
            return (4, HandshakeStep::More);
        }
        let (Some(magic), Some(option), Some(len)) = (reader.u64(), reader.u32(), reader.u32())
        else {
            return (0, HandshakeStep::More);
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if magic != OPTION_MAGIC
            || len > NBD_OPTION_BYTES_MAX
            || self.progress.options == NBD_OPTIONS_MAX
        {
            return (input.len(), HandshakeStep::Close);
        }
        let Some(data) = reader.take(len) else {
            return (0, HandshakeStep::More);
        };
        self.progress.options += 1;
        (OPTION_HEADER_BYTES + len, self.option(option, data, output))
    }

    fn option(&mut self, number: u32, data: &[u8], output: &mut Writer) -> HandshakeStep {
        let offers = matches!(self.encryption, Encryption::Offered | Encryption::Required);
        match number {
            option::STARTTLS if offers && data.is_empty() => {
                output.option_reply(number, reply::ACK, &[]);
                return HandshakeStep::StartTls;
            }
            option::STARTTLS if self.encryption != Encryption::Unavailable => {
                output.option_reply(
                    number,
                    reply::ERR_INVALID,
                    b"not permitted at this point, or \
                    has data",
                );
            }
            option::EXPORT_NAME if self.encryption == Encryption::Required => {
                return HandshakeStep::Close;
            }
            _ if self.encryption == Encryption::Required && number != option::ABORT => {
                output.option_reply(number, reply::ERR_TLS_REQD, b"start TLS first");
            }
            option::EXPORT_NAME => return self.export_name(data, output),
            option::ABORT => {
                output.option_reply(number, reply::ACK, &[]);
                return HandshakeStep::Close;
            }
            option::LIST if data.is_empty() => {
                for export in self.exports.iter() {
                    let mut entry = Writer::default();
                    let len = u32::try_from(export.name.len()).expect("a short name");
                    entry.u32(len).bytes(export.name.as_bytes());
                    output.option_reply(number, reply::SERVER, &entry.0);
                }
                output.option_reply(number, reply::ACK, &[]);
            }
            option::INFO | option::GO => return self.go(number, data, output),
            option::STRUCTURED_REPLY if data.is_empty() => {
                let refused = self.progress.form == Form::Extended;
                if !refused {
                    self.progress.form = Form::Structured;
                }
                let kind = if refused {
                    reply::ERR_INVALID
                } else {
                    reply::ACK
                };
                output.option_reply(number, kind, &[]);
            }
            option::EXTENDED_HEADERS if data.is_empty() => {
                self.progress.form = Form::Extended;
                output.option_reply(number, reply::ACK, &[]);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(number, data, output);
            }
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
                output.option_reply(
                    number,
                    reply::ERR_INVALID,
                    b"this option must not have data",
                );
            }
            _ => output.option_reply(number, reply::ERR_UNSUP, &[]),
        }
        HandshakeStep::More
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        let mut exports = self.exports.iter();
        exports.position(|export| export.name.as_bytes() == name && !export.is_gone())
    }

    fn session(&self, export: usize) -> Session {
        Session {
            export,
            form: self.progress.form,
            allocation: self.progress.allocation == Some(export)
                && self.progress.form != Form::Simple,
        }
    }

    /// Handles the oldest option to choose an export: only closing the connection can report that
    /// it does not exist.
    fn export_name(&mut self, name: &[u8], output: &mut Writer) -> HandshakeStep {
        let Some(index) = self.find(name) else {
            return HandshakeStep::Close;
        };
        let export = &self.exports[index];
        output
            .u64(export.bytes())
            .u16(export.flags(self.progress.form));
        if !self.progress.no_zeroes {
            output.bytes(&[0; 124]);
        }
        HandshakeStep::Begin(self.session(index))
    }

    fn go(&mut self, number: u32, data: &[u8], output: &mut Writer) -> HandshakeStep {
        let mut reader = Reader::new(data);
        let wanted = (|| {
            let name = reader.string()?;
            let count = reader.u16()?;
            let wanted: Option<Vec<u16>> = (0..count).map(|_| reader.u16()).collect();
            reader.is_empty().then_some((name, wanted?))
        })();
        let Some((name, wanted)) = wanted else {
            output.option_reply(number, reply::ERR_INVALID, b"malformed");
            return HandshakeStep::More;
        };
        let Some(index) = self.find(name) else {
            output.option_reply(number, reply::ERR_UNKNOWN, b"no such export");
            return HandshakeStep::More;
        };
        let export = &self.exports[index];
        let mut say = |kind: u16, fill: &dyn Fn(&mut Writer)| {
            let mut entry = Writer::default();
            entry.u16(kind);
            fill(&mut entry);
            output.option_reply(number, reply::INFO, &entry.0);
        };
        let form = self.progress.form;
        say(info::EXPORT, &|entry| {
            entry.u64(export.bytes()).u16(export.flags(form));
        });
        // Sent even to a client that did not request it, which may still honour it.
        let [min, preferred, max] = export.block_sizes();
        say(info::BLOCK_SIZE, &|entry| {
            entry.u32(min).u32(preferred).u32(max);
        });
        if wanted.contains(&info::NAME) {
            say(info::NAME, &|entry| {
                entry.bytes(export.name.as_bytes());
            });
        }
        if wanted.contains(&info::DESCRIPTION) {
            say(info::DESCRIPTION, &|entry| {
                entry.bytes(export.description.as_bytes());
            });
        }
        output.option_reply(number, reply::ACK, &[]);
        if number == option::INFO {
            return HandshakeStep::More;
        }
        HandshakeStep::Begin(self.session(index))
    }

    fn meta_context(&mut self, number: u32, data: &[u8], output: &mut Writer) {
        let mut reader = Reader::new(data);
        let parsed = (|| {
            let name = reader.string()?;
            let count = reader.u32()?;
            // Each context takes at least four bytes, so the data size bounds their number.
            let mut matched = count == 0 && number == option::LIST_META_CONTEXT;
            for _ in 0..count {
                let query = reader.string()?;
                let lists = number == option::LIST_META_CONTEXT && query == b"base:";
                matched |= lists || query == ALLOCATION.as_bytes();
            }
            reader.is_empty().then_some((name, matched))
        })();
        let sets = number == option::SET_META_CONTEXT;
        if sets {
            self.progress.allocation = None;
        }
        let Some((name, matched)) = parsed.filter(|_| !sets || self.progress.form != Form::Simple)
        else {
            output.option_reply(
                number,
                reply::ERR_INVALID,
                b"malformed, or structured replies are not enabled",
            );
            return;
        };
        let Some(index) = self.find(name) else {
            output.option_reply(number, reply::ERR_UNKNOWN, b"no such export");
            return;
        };
        if matched {
            let id = if sets { ALLOCATION_CONTEXT } else { 0 };
            let mut entry = Writer::default();
            entry.u32(id).bytes(ALLOCATION.as_bytes());
            output.option_reply(number, reply::META_CONTEXT, &entry.0);
            if sets {
                self.progress.allocation = Some(index);
            }
        }
        output.option_reply(number, reply::ACK, &[]);
    }
}
