//! Programs that use `libswitchyard` with a target in another process: in C, and the tokio example.

use anyhow::{Context as _, Result, ensure};
use std::io::Write as _;
use std::process::Command;
use switchyard_e2e::library::{Checks, Library, tokio_example};
use switchyard_e2e::limits::COMMAND_DEADLINE;
use switchyard_e2e::process::{Process, Serve};
use switchyard_e2e::{Readiness, cache_directory, output_of, require_programs};

/// Runs a program against its own target.
fn run(name: &str, checks: Checks) -> Result<String> {
    let library = Library::build()?;
    let program = library.compile(name, checks)?;
    let target = Serve::start(&["--ram", "16M"])?;
    let mut command = library.command(program);
    command.arg(target.address().to_string());
    command.env("TARGET_PROCESS", target.id().to_string());
    let text = Process::start(&mut command)?.succeed(COMMAND_DEADLINE)?;
    target.stop()?;
    Ok(text)
}

fn run_both(name: &str) -> Result<()> {
    if require_programs(&["cc"])? == Readiness::Skip {
        return Ok(());
    }
    run(name, Checks::Plain)?;
    run(name, Checks::Sanitized)?;
    Ok(())
}

#[test]
fn what_was_written_by_blocking_calls_is_read() -> Result<()> {
    if require_programs(&["cc"])? == Readiness::Skip {
        return Ok(());
    }
    let text = run("hello", Checks::Plain)?;
    ensure!(text == "the same data\n", "{text}");
    Ok(())
}

#[test]
fn the_header_is_also_one_for_cpp() -> Result<()> {
    if require_programs(&["c++"])? == Readiness::Skip {
        return Ok(());
    }
    let library = Library::build()?;
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
    compiler.args(["-x", "c++"]);
    output_of(compiler.arg(library.headers().join("switchyard.h")))?;
    Ok(())
}

#[test]
fn blocking_calls_do_what_the_header_says() -> Result<()> {
    run_both("blocking")
}

#[test]
fn queues_do_what_the_header_says() -> Result<()> {
    run_both("queue")
}

#[test]
fn requests_are_given_up_and_touch_nothing_afterwards() -> Result<()> {
    run_both("limits")
}

#[test]
fn misuse_is_refused() -> Result<()> {
    run_both("misuse")
}

#[test]
fn the_example_with_tokio_runs() -> Result<()> {
    let target = Serve::start(&["--ram", "16M"])?;
    let mut command = Command::new(tokio_example()?);
    let text = Process::start(command.arg(target.address().to_string()))?;
    let text = text.succeed(COMMAND_DEADLINE)?;
    ensure!(text.starts_with("100 tasks"), "{text}");
    target.stop()?;
    Ok(())
}

#[test]
fn threads_of_both_classes_share_the_lanes_of_a_switchboard() -> Result<()> {
    run_both("switchboard")
}

#[test]
fn knobs_are_chosen_read_and_changed() -> Result<()> {
    run_both("knobs")
}

#[test]
fn a_program_goes_on_when_its_target_is_killed() -> Result<()> {
    goes_on_when_its_target_is_killed("load")
}

#[test]
fn the_threads_of_a_switchboard_go_on_when_their_target_is_killed() -> Result<()> {
    goes_on_when_its_target_is_killed("switchboard")
}

/// The target is killed and restarted under load; no write is lost or executed twice.
fn goes_on_when_its_target_is_killed(name: &str) -> Result<()> {
    if require_programs(&["cc"])? == Readiness::Skip {
        return Ok(());
    }
    let library = Library::build()?;
    let program = library.compile(name, Checks::Sanitized)?;
    let file = cache_directory("programs")?.join(format!("{name}.disk"));
    std::fs::File::create(&file)?.set_len(16 << 20)?;
    let file = file.to_str().context("the path is text")?;
    let listen = testing::own_address();
    let mut target = Serve::start_with(&["--listen", &listen, "--file", file])?;
    let address = target.address().to_string();

    let mut command = library.command(program);
    command.arg(&address);
    let mut load = Load::start(&mut command)?;
    for _ in 0..5 {
        load.progress()?;
        target.kill()?;
        target = Serve::start_again(&["--listen", &address, "--file", file])?;
    }
    load.progress()?;
    let text = load.end()?;
    ensure!(text.contains("verified"), "{text}");
    target.stop()?;
    Ok(())
}

/// A program that runs until its input ends it.
struct Load {
    process: Process,
    input: std::process::ChildStdin,
}

impl Load {
    fn start(command: &mut Command) -> Result<Self> {
        let (process, input) = Process::start_with_input(command)?;
        Ok(Self { process, input })
    }

    /// Waits until it has made progress since the call.
    fn progress(&mut self) -> Result<()> {
        let lines = self.process.stdout().lines().count();
        let further = |stdout: &str, _: &str| (stdout.lines().count() > lines + 1).then_some(());
        self.process.wait_for("progress", COMMAND_DEADLINE, further)
    }

    fn end(mut self) -> Result<String> {
        self.input.write_all(b"enough\n")?;
        self.process.succeed(COMMAND_DEADLINE)
    }
}
