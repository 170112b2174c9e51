//! Wireshark's NVMe/TCP dissector reads a captured run of ours without complaints.

use anyhow::{Context as _, Result, ensure};
use switchyard_e2e::capture::{Capture, Dissection, PROGRAMS, PduType};
use switchyard_e2e::limits::FOREIGN_HOST_DEADLINE;
use switchyard_e2e::process::{DEFAULT_NQN, Digests, Remote, Serve, start_foreign_host};
use switchyard_e2e::{Readiness, cache_directory, require_programs, skip};

/// Bytes of the transfer by `write` and `read`: several commands, the last one short.
const TRANSFER_BYTES: usize = (1 << 20) + (64 << 10) + 4096;

/// Opcodes of the vendor commands over extents (docs/design/compliance.md).
const WRITE_EXTENTS: u8 = 0x81;
const READ_EXTENTS: u8 = 0x83;

#[test]
fn capture_without_digests() -> Result<()> {
    dissect(Digests::Off)
}

#[test]
fn capture_with_digests() -> Result<()> {
    dissect(Digests::On)
}

/// The target's answers to a host that exercises everything, including violations: with each kind
/// of digest, several R2Ts at a time, statuses of all kinds, and terminated connections.
#[test]
fn capture_of_a_foreign_host() -> Result<()> {
    if readiness(&[&PROGRAMS[..], &["python3"]].concat())? == Readiness::Skip {
        return Ok(());
    }
    let serve = Serve::start(&["--ram", "64M", "--block-size", "512"])?;
    let capture = Capture::start(serve.address().port())?;
    start_foreign_host(serve.address(), &["--dissected"])?.succeed(FOREIGN_HOST_DEADLINE)?;
    serve.stop()?;
    let dissection = capture.finish_of_target()?;
    println!("foreign host: {dissection:?}");
    no_complaints(&dissection)?;
    for pdu in [
        PduType::IcResp,
        PduType::CapsuleResp,
        PduType::C2hData,
        PduType::R2t,
        PduType::C2hTermReq,
    ] {
        ensure!(dissection.count(pdu) > 0, "no {pdu:?} in {dissection:?}");
    }
    for found in [dissection.header_digests, dissection.data_digests] {
        ensure!(
            found.bad == 0 && found.good > 0,
            "digests in {dissection:?}"
        );
    }
    Ok(())
}

fn readiness(programs: &[&str]) -> Result<Readiness> {
    if require_programs(programs)? == Readiness::Skip {
        return Ok(Readiness::Skip);
    }
    if !rustix::process::geteuid().is_root() {
        return skip("capturing packets needs root");
    }
    Ok(Readiness::Ready)
}

fn no_complaints(dissection: &Dissection) -> Result<()> {
    ensure!(
        dissection.complaints.is_empty(),
        "{} complaints, the first: {:#?}",
        dissection.complaints.len(),
        &dissection.complaints[..dissection.complaints.len().min(10)]
    );
    Ok(())
}

fn dissect(digests: Digests) -> Result<()> {
    if readiness(&PROGRAMS)? == Readiness::Skip {
        return Ok(());
    }
    let serve = Serve::start(&["--ram", "64M"])?;
    let capture = Capture::start(serve.address().port())?;
    let remote = Remote {
        address: serve.address(),
        digests,
    };
    let found = remote.discover()?;
    ensure!(found.contains(DEFAULT_NQN), "discovered {found}");
    transfer(remote)?;
    // At a fixed rate, so that the capture keeps up on any machine: small requests with in-capsule
    // data, large ones that need an R2T, several at once.
    let report = remote.bench(
        &[
            "small:rw=randrw,bs=4k,depth=4,rate=200",
            "large:rw=randrw,bs=128k,depth=4,rate=40",
        ],
        2,
    )?;
    ensure!(
        report.contains("\"apps\""),
        "bench wrote no report: {report}"
    );
    // Several threads have a request at a time, often enough that many reads and writes travel as
    // one command over extents.
    let app = "merged:rw=randrw,bs=4k,count=8,depth=4,rate=8000,pace=poisson";
    remote.bench_by_path("stm", &[app], 1)?;
    serve.stop()?;
    let dissection = capture.finish()?;
    println!("{digests:?}: {dissection:?}");

    no_complaints(&dissection)?;
    for pdu in [
        PduType::IcReq,
        PduType::IcResp,
        PduType::CapsuleCmd,
        PduType::CapsuleResp,
        PduType::C2hData,
        PduType::R2t,
        PduType::H2cData,
    ] {
        ensure!(dissection.count(pdu) > 0, "no {pdu:?} in {dissection:?}");
    }
    for opcode in [WRITE_EXTENTS, READ_EXTENTS] {
        let count = dissection.commands.get(&opcode);
        ensure!(count.is_some(), "no command {opcode:#x} in {dissection:?}");
    }
    for pdu in [PduType::H2cTermReq, PduType::C2hTermReq] {
        ensure!(dissection.count(pdu) == 0, "{pdu:?} in {dissection:?}");
    }
    for found in [dissection.header_digests, dissection.data_digests] {
        ensure!(found.bad == 0, "wrong digests in {dissection:?}");
        ensure!(
            (found.good > 0) == (digests == Digests::On),
            "{digests:?} gave {dissection:?}"
        );
    }
    Ok(())
}

/// Writes a file to the namespace, reads it back, and compares.
fn transfer(remote: Remote) -> Result<()> {
    let folder = cache_directory(&format!("dissector-{:?}", remote.digests))?;
    let (source, copy) = (folder.join("source"), folder.join("copy"));
    let mut content = vec![0; TRANSFER_BYTES];
    base::prng::Prng::from_seed(22).fill(&mut content);
    std::fs::write(&source, &content)?;
    remote.write(4096, &source)?;
    remote.read(4096, TRANSFER_BYTES as u64, &copy)?;
    let found = std::fs::read(&copy).context("read back what was written")?;
    ensure!(
        found == content,
        "what was read differs from what was written"
    );
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
