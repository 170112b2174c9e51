//! Guests with TLS or DH-HMAC-CHAP.

use super::{Data, GuestLog, INITIATOR_MODULES, Scenario};
use crate::vm::Watch;
use crate::{find_program, output_of};
use anyhow::{Context as _, Result};
use std::net::SocketAddr;
use std::process::Command;

/// A secret that guest scripts use by its name.
#[derive(Debug)]
pub struct Key {
    /// Name of its file in the guest.
    pub name: &'static str,
    /// The secret, in its interchange format.
    pub text: String,
}

impl Key {
    /// Creates a TLS key with `nvme gen-tls-key`; `hash` is 1 for SHA-256, 2 for SHA-384.
    ///
    /// # Errors
    /// If the program fails.
    pub fn tls(name: &'static str, hash: u8) -> Result<Self> {
        Self::new(name, "gen-tls-key", hash)
    }

    /// Creates a secret of DH-HMAC-CHAP with `nvme gen-dhchap-key`; `hash` is 0 for none, 1 for
    /// SHA-256, 2 for SHA-384, 3 for SHA-512.
    ///
    /// # Errors
    /// If the program fails.
    pub fn chap(name: &'static str, hash: u8) -> Result<Self> {
        Self::new(name, "gen-dhchap-key", hash)
    }

    fn new(name: &'static str, generator: &str, hash: u8) -> Result<Self> {
        let program = find_program("nvme").context("nvme is not installed")?;
        let mut command = Command::new(program);
        command.args([generator, "--hmac", &hash.to_string()]);
        let text = String::from_utf8(output_of(&mut command)?).context("nvme speaks UTF-8")?;
        Ok(Self { name, text })
    }
}

/// How host and target of a scenario prove their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// TLS. The guest uses the keys `sha256`, `sha384` and `wrong`.
    Tls,
    /// DH-HMAC-CHAP. The guest uses the secrets `host`, `controller` and `wrong`.
    Chap,
}

/// Modules for TLS of the kernel.
const TLS_MODULES: [&str; 4] = ["tls", "aesni_intel", "ghash_generic", "gcm"];

const PARAMETERS: &str = ". /parameters\n";
const DEBIAN13: &str = include_str!("../../guest/debian13.sh");
const TLS: &str = include_str!("../../guest/tls.sh");
const INITIATOR: &str = include_str!("../../guest/secure_initiator.sh");

/// Boots a guest whose kernel connects to a target that requires this proof, with the right keys
/// and with wrong ones.
///
/// # Errors
/// Like [`run_initiator`](super::run_initiator).
pub fn run_secure_initiator(
    proof: Proof,
    data: &Data,
    target: SocketAddr,
    keys: &[Key],
) -> Result<GuestLog> {
    let (tls, script) = match proof {
        Proof::Tls => (TLS, include_str!("../../guest/tls_initiator.sh")),
        Proof::Chap => ("", include_str!("../../guest/chap_initiator.sh")),
    };
    let scenario = Scenario {
        targets: &[("secure", target.port())],
        modules: [&INITIATOR_MODULES[..], &TLS_MODULES].concat(),
        keys,
        ..Scenario::new(&[PARAMETERS, DEBIAN13, tls, INITIATOR, script])
    };
    Ok(GuestLog::parse(&scenario.guest(data)?.run()?))
}

/// Boots a guest with the kernel's own target, which requires this proof, like
/// [`run_foreign_target`](super::run_foreign_target): `watch` uses it after the step
/// `require-proof`.
///
/// # Errors
/// Like [`run_initiator`](super::run_initiator), and errors of `watch`.
pub fn run_secure_target(
    proof: Proof,
    data: &Data,
    port: u16,
    keys: &[Key],
    watch: Watch<'_>,
) -> Result<GuestLog> {
    let (tls, script) = match proof {
        Proof::Tls => (TLS, include_str!("../../guest/tls_target.sh")),
        Proof::Chap => ("", include_str!("../../guest/chap_target.sh")),
    };
    let end = include_str!("../../guest/foreign_target.sh");
    let script = [DEBIAN13, tls, script, end].join("\n");
    let mut scenario = Scenario {
        keys,
        ..Scenario::kernel_target(&script)
    };
    scenario.modules.extend(TLS_MODULES);
    let vm = scenario.guest(data)?.forward(port, 4420);
    Ok(GuestLog::parse(&vm.run_watched(watch)?))
}
