//! TLS and DH-HMAC-CHAP with the Linux kernel, in a guest, as initiator of our target and as target
//! of our host. `tlshd` makes the kernel's handshakes, and `nvme-cli` inserts its keys.

use anyhow::{Context as _, Result, ensure};
use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use switchyard_e2e::guest::{
    Data, FINISHED, FINISHED_AT, HOST_NQN, Key, Proof, programs, run_secure_initiator,
    run_secure_target, unused_port,
};
use switchyard_e2e::limits::FOREIGN_HOST_DEADLINE;
use switchyard_e2e::process::{
    DEFAULT_NQN, Serve, start_foreign_chap, switchyard, switchyard_binary,
};
use switchyard_e2e::vm::past_emulation_faults;
use switchyard_e2e::{Readiness, cache_directory, require_programs};

/// A folder with private files of keys.
struct Keys {
    folder: PathBuf,
}

impl Keys {
    fn new(name: &str) -> Result<Self> {
        let folder = cache_directory(name)?;
        Ok(Self { folder })
    }

    /// Writes a file of keys, which only its owner may read, and returns its path.
    fn file(&self, name: &str, keys: &[&Key]) -> Result<String> {
        let path = self.path(name)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        for key in keys {
            writeln!(file, "{}", key.text.trim())?;
        }
        Ok(path)
    }

    fn path(&self, name: &str) -> Result<String> {
        let path = self.folder.join(name).into_os_string().into_string();
        path.ok().context("a path in UTF-8")
    }

    fn remove(self) -> Result<()> {
        std::fs::remove_dir_all(&self.folder).context("remove the keys")
    }
}

fn steps(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Stops a target, and checks that its log has these texts.
fn stop(serve: Serve, reasons: &[&str]) -> Result<()> {
    let log = serve.stop()?;
    for reason in reasons {
        ensure!(log.contains(reason), "not logged: {reason}\n{log}");
    }
    Ok(())
}

/// The kernel connects with both versions of the identity, and uses the namespace. With a wrong key,
/// with a key that its `tlshd` cannot prove, and in clear text it is refused, with the reason in our
/// log.
#[test]
fn linux_tls_initiator() -> Result<()> {
    past_emulation_faults(&programs(), serve_tls)
}

fn serve_tls() -> Result<()> {
    let folder = Keys::new("tls-initiator")?;
    let keys = [
        Key::tls("sha256", 1)?,
        Key::tls("sha384", 2)?,
        Key::tls("wrong", 1)?,
    ];
    let file = folder.file("keys", &[&keys[0], &keys[1]])?;
    let serve = Serve::start(&["--ram", "64M", "--tls", "required", "--tls-key", &file])?;
    let data = Data::from_seed(24);
    let report = run_secure_initiator(Proof::Tls, &data, serve.address(), &keys)?;
    let mut expected = steps(&["tlshd"]);
    for version in 0..2 {
        let steps = ["connect", "use", "disconnect", "wrong"];
        expected.extend(steps.map(|step| format!("{step}-{version}")));
    }
    expected.extend(steps(&["sha384", "clear-text"]));
    report.check_survived(&expected)?;
    let reasons = [
        "wrong key for identity NVMe0R01",
        "wrong key for identity NVMe1R01",
        "has another hash function than its key",
        "the host does not use TLS, which this address requires",
    ];
    stop(serve, &reasons)?;
    folder.remove()
}

/// Our host uses the kernel's target with a key that `nvme-cli` 2.13 inserted there, which derives
/// it in the old form.
#[test]
fn linux_tls_target() -> Result<()> {
    past_emulation_faults(&programs(), use_tls_target)
}

fn use_tls_target() -> Result<()> {
    let folder = Keys::new("tls-target")?;
    let keys = [Key::tls("sha256", 1)?, Key::tls("wrong", 1)?];
    let right = folder.file("right", &[&keys[0]])?;
    let wrong = folder.file("wrong", &[&keys[1]])?;
    let host = Host {
        folder: &folder,
        right: &[&["--tls-key", &right]],
        wrong: &[
            (&["--tls-key", &wrong], &["no key for this host"]),
            (&[], &["give a key"]),
        ],
    };
    host.use_kernel_target(Proof::Tls, &keys)?;
    folder.remove()
}

/// Our host, and the options with which it uses a target.
struct Host<'a> {
    folder: &'a Keys,
    right: &'a [&'a [&'a str]],
    /// With the reasons of which our error has one.
    wrong: &'a [(&'a [&'a str], &'a [&'a str])],
}

impl Host<'_> {
    fn use_kernel_target(&self, proof: Proof, keys: &[Key]) -> Result<()> {
        // Builds it, if that is due, before the guest waits for this host.
        switchyard_binary()?;
        let (data, port) = (Data::from_seed(25), unused_port()?);
        let address = ([127, 0, 0, 1], port).into();
        let report = run_secure_target(proof, &data, port, keys, &mut |step| match step {
            "require-proof" => self.use_it(address),
            _ => Ok(()),
        })?;
        report.check_survived(&steps(&["require-proof", "finished"]))
    }

    fn use_it(&self, address: SocketAddr) -> Result<()> {
        let address = address.to_string();
        let place = [&*address, "--host-nqn", HOST_NQN, "--nqn", DEFAULT_NQN];
        let run = |command: &[&str], rest: &[&str], proof: &[&str]| {
            switchyard(&[command, &place, rest, proof].concat())
        };
        for (wrong, reasons) in self.wrong {
            let error = run(&["identify"], &[], wrong);
            let error = error.err().context("connected without the right key")?;
            let said = format!("{error:#}");
            ensure!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
        }
        let load = "mix:rw=randrw,bs=16k,depth=8,count=1";
        let load = ["--app", load, "--seconds", "1", "--warmup", "0", "--verify"];
        for right in self.right {
            run(&["bench", "--target"], &load, right)?;
        }
        let right = self.right[0];
        let (input, output) = (self.folder.path("input")?, self.folder.path("output")?);
        let mut content = FINISHED.as_bytes().to_vec();
        content.resize(1 << 20, b'\n');
        std::fs::write(&input, &content)?;
        run(&["write"], &["--input", &input], right)?;
        run(&["read"], &["--length", "1M", "--output", &output], right)?;
        ensure!(std::fs::read(&output)? == content);
        // The guest ends when it finds the text here.
        let offset = FINISHED_AT.to_string();
        run(&["write"], &["--offset", &offset, "--input", &input], right)?;
        Ok(())
    }
}

/// The kernel authenticates in one direction and in both, and uses the namespace. With wrong secrets
/// and without one it is refused, with the reason in our log.
#[test]
fn linux_chap_initiator() -> Result<()> {
    past_emulation_faults(&programs(), serve_chap)
}

fn serve_chap() -> Result<()> {
    let folder = Keys::new("chap-initiator")?;
    let keys = chap_keys()?;
    let serve = serve_with_chap(&folder, &keys)?;
    let data = Data::from_seed(26);
    let report = run_secure_initiator(Proof::Chap, &data, serve.address(), &keys)?;
    let mut expected = steps(&["wrong-host", "wrong-controller", "no-secret"]);
    for name in ["one", "both"] {
        let steps = ["connect", "use", "disconnect"];
        expected.extend(steps.map(|step| format!("{step}-{name}")));
    }
    report.check_survived(&expected)?;
    let reasons = [
        "the host has another secret than the controller",
        "it expects another controller secret",
    ];
    stop(serve, &reasons)?;
    folder.remove()
}

fn chap_keys() -> Result<[Key; 3]> {
    Ok([
        Key::chap("host", 1)?,
        Key::chap("controller", 0)?,
        Key::chap("wrong", 2)?,
    ])
}

/// Options with which both prove themselves.
fn mutual<'a>(host: &'a str, controller: &'a str) -> [&'a str; 4] {
    let flag = "--chap-controller-secret";
    ["--chap-secret", host, flag, controller]
}

/// Starts a target that requires DH-HMAC-CHAP with the first two secrets.
fn serve_with_chap(folder: &Keys, keys: &[Key; 3]) -> Result<Serve> {
    let host = folder.file("host", &[&keys[0]])?;
    let controller = folder.file("controller", &[&keys[1]])?;
    Serve::start(&[&["--ram", "64M"], &mutual(&host, &controller)[..]].concat())
}

/// Our host authenticates to the kernel's target, in one direction and in both.
#[test]
fn linux_chap_target() -> Result<()> {
    past_emulation_faults(&programs(), use_chap_target)
}

fn use_chap_target() -> Result<()> {
    let folder = Keys::new("chap-target")?;
    let keys = chap_keys()?;
    let host = folder.file("host", &[&keys[0]])?;
    let controller = folder.file("controller", &[&keys[1]])?;
    let wrong = folder.file("wrong", &[&keys[2]])?;
    // At times Linux does so instead of answering.
    let closed = "closed the connection during DH-HMAC-CHAP";
    let host = Host {
        folder: &folder,
        right: &[&["--chap-secret", &host], &mutual(&host, &controller)],
        wrong: &[
            (&["--chap-secret", &wrong], &["refused at Reply", closed]),
            (&mutual(&host, &wrong), &["could not prove itself"]),
            (&[], &["requires DH-HMAC-CHAP"]),
        ],
    };
    host.use_kernel_target(Proof::Chap, &keys)?;
    folder.remove()
}

/// A host in Python computes DH-HMAC-CHAP independently of ours.
#[test]
fn foreign_host_authenticates() -> Result<()> {
    if require_programs(&["python3", "nvme"])? == Readiness::Skip {
        return Ok(());
    }
    let folder = Keys::new("foreign-chap")?;
    let serve = serve_with_chap(&folder, &chap_keys()?)?;
    let files = [folder.path("host")?, folder.path("controller")?];
    let host = start_foreign_chap(serve.address(), [&files[0], &files[1]])?;
    let said = host.succeed(FOREIGN_HOST_DEADLINE)?;
    ensure!(said.ends_with("\n0 violations\n"), "{said}");
    serve.stop()?;
    folder.remove()
}
