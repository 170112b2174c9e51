//! An independent host implementation, `foreign_host.py`, exercises a target with all its functions
//! and finds no violation of the specifications, in memory and in a file, with both block sizes.

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::path::Path;
use switchyard_e2e::limits::{COMMAND_DEADLINE, FOREIGN_HOST_DEADLINE};
use switchyard_e2e::process::{DEFAULT_NQN, Serve, start_foreign_host};
use switchyard_e2e::{Readiness, cache_directory, require_programs};

const SIZE: u64 = 64 << 20;

#[test]
fn foreign_host_finds_no_violation_in_memory() -> Result<()> {
    use_target("memory", |_| {
        Ok("type = \"ram\"\nsize = \"64M\"\nblock_size = 512\n".to_owned())
    })
}

#[test]
fn foreign_host_finds_no_violation_in_a_file() -> Result<()> {
    use_target("file", |folder| {
        let path = folder.join("namespace");
        File::create(&path)?.set_len(SIZE)?;
        let path = path.display();
        Ok(format!(
            "type = \"file\"\npath = \"{path}\"\nblock_size = 4096\n"
        ))
    })
}

/// Take-overs under the foreign host. It also waits for a keep-alive timer to expire, which each
/// take-over starts anew.
const TAKE_OVERS: u32 = 20;

/// It finds none while one process after another takes the target over, either.
#[test]
fn foreign_host_finds_no_violation_in_take_overs() -> Result<()> {
    if require_programs(&["python3"])? == Readiness::Skip {
        return Ok(());
    }
    let mut serve = Serve::start(&["--ram", "64M", "--block-size", "512"])?;
    let address = serve.address().to_string();
    let again = ["--listen", &address, "--ram", "64M", "--block-size", "512"];
    let mut host = start_foreign_host(serve.address(), &[])?;
    let mut taken_over = 0;
    while taken_over < TAKE_OVERS && host.has_ended()?.is_none() {
        // Refused while the host owes data.
        taken_over += u32::from(serve.take_over(&again).is_ok());
    }
    let said = host.succeed(FOREIGN_HOST_DEADLINE)?;
    println!("{taken_over} take-overs; {said}");
    ensure!(said.ends_with("\n0 violations\n"), "{said}");
    ensure!(taken_over > 1, "the host had ended before");
    serve.stop()?;
    Ok(())
}

fn use_target(name: &str, device: impl FnOnce(&Path) -> Result<String>) -> Result<()> {
    if require_programs(&["python3"])? == Readiness::Skip {
        return Ok(());
    }
    let folder = cache_directory(&format!("foreign-host-{name}"))?;
    let device = device(&folder)?;
    let config = folder.join("target.toml");
    let configure = |second: &str| {
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\n[devices.first]\n{device}\
             [devices.second]\ntype = \"ram\"\nsize = \"8M\"\n\
             [[subsystems]]\nnqn = \"{DEFAULT_NQN}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"first\" }}, {second}]\n"
        );
        std::fs::write(&config, text).context("write the configuration")
    };
    configure("")?;
    let serve = Serve::start_with(&["--config", config.to_str().context("a path in UTF-8")?])?;
    let mut host = start_foreign_host(serve.address(), &["--notice"])?;
    host.wait_for("waiting for a notice", COMMAND_DEADLINE, |stdout, _| {
        stdout.contains("waiting for a notice").then_some(())
    })?;
    configure("{ nsid = 2, device = \"second\" }")?;
    serve.reload()?;
    let said = host.succeed(FOREIGN_HOST_DEADLINE)?;
    println!("{said}");
    ensure!(said.ends_with("\n0 violations\n"), "{said}");
    let r2ts = said
        .split("up to ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let r2ts: u32 = r2ts.context("no R2Ts in the summary")?.parse()?;
    ensure!(r2ts > 1, "never more than one R2T at a time:\n{said}");
    serve.stop()?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
