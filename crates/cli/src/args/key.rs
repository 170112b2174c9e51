//! `switchyard key`.

use super::in_range;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Make and check keys of hosts
///
/// Keys are never arguments, because other users can see the arguments of a process.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard key tls new --output db.key
  switchyard key tls check db.key
  switchyard key tls show-identity db.key --hostnqn nqn.2026-11.io.example:db \\
      --subnqn nqn.2026-11.io.switchyard:default
  switchyard key chap new --hmac 1 | ssh root@db 'umask 077; cat > db.chap'

Exit codes: 0 success, 2 error: no valid key, or no usable file")]
pub struct KeyArgs {
    #[command(subcommand)]
    pub command: KeyCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum KeyCommand {
    /// Pre-shared keys of TLS, also for nvme-cli (nvme gen-tls-key)
    Tls {
        #[command(subcommand)]
        command: TlsKeyCommand,
    },
    /// Secrets of DH-HMAC-CHAP, also for nvme-cli (nvme gen-dhchap-key)
    Chap {
        #[command(subcommand)]
        command: ChapKeyCommand,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub enum TlsKeyCommand {
    /// Make a random key
    New {
        /// Hash function: 1 for SHA-256 and a key of 32 bytes, 2 for SHA-384 and 48 bytes
        #[arg(long, value_name = "NUMBER", value_parser = in_range::<u8>(1..=2), default_value = "1")]
        hmac: u8,
        #[command(flatten)]
        output: NewKeyFile,
    },
    /// Check the keys of a file, and show their hash functions and lengths
    Check {
        #[command(flatten)]
        input: CheckedKeys,
    },
    /// Show the TLS identities of a key between a host and a subsystem
    ShowIdentity {
        /// File with the key, of mode 0600
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// NQN of the host
        #[arg(long, value_name = "NQN")]
        hostnqn: String,
        /// NQN of the subsystem
        #[arg(long, value_name = "NQN")]
        subnqn: String,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub enum ChapKeyCommand {
    /// Make a random secret
    New {
        /// Hash function that transforms the secret: 0 for none, 1 for SHA-256, 2 for SHA-384, 3 for
        /// SHA-512
        #[arg(long, value_name = "NUMBER", value_parser = in_range::<u8>(0..=3), default_value = "0")]
        hmac: u8,
        /// Bytes: 32, 48 or 64 [default: those of the hash function, or 32]
        #[arg(long, value_name = "BYTES", value_parser = in_range::<u8>(32..=64))]
        length: Option<u8>,
        #[command(flatten)]
        output: NewKeyFile,
    },
    /// Check the secrets of a file, and show their hash functions and lengths
    Check {
        #[command(flatten)]
        input: CheckedKeys,
    },
}

/// The destination of a new key.
#[derive(Args, Clone, Debug)]
pub struct NewKeyFile {
    /// New file for the key, of mode 0600; an existing file is not replaced [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The source of keys to check.
#[derive(Args, Clone, Debug)]
pub struct CheckedKeys {
    /// File with one key in each line, of mode 0600 [default: stdin]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}
