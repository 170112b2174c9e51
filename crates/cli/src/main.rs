//! The program that operators install: the target, the host for people and scripts, and the load
//! generator.
//!
//! What is this: it reads the command line, and hands it to the module of its command. It owns
//! the process: its logs, its output, its exit code. The libraries below neither print nor log
//! where they pass an error on.

// A binary has no public interface: what modules share is as visible as it needs to be.
#![allow(unreachable_pub)]

mod args;
mod board;
mod cmd;
mod moved;
mod otlp;
mod screen;
mod tables;

use args::{Cli, Command};
use clap::{CommandFactory as _, Parser as _};
use clap_complete::CompleteEnv;
use cli::exit::{self, Outcome};
use cli::{log, output};
use std::process::ExitCode;

fn main() -> ExitCode {
    let completing = CompleteEnv::with_factory(Cli::command);
    completing.var(cmd::completions::VARIABLE).complete();
    if let Some(moved) = moved::find(std::env::args_os().skip(1)) {
        return exit::code(Err(moved));
    }
    let cli = Cli::parse();
    let started = cli.common.start_log("warn");
    let code = exit::code(started.and_then(|()| run(cli)));
    log::flush();
    code
}

fn run(cli: Cli) -> anyhow::Result<Outcome> {
    let output = cli.common.output();
    if matches!(cli.command, Command::Attach(_)) {
        frontend::passed_sockets::take()?;
    }
    if !matches!(cli.command, Command::Serve(_)) {
        log::begin()?;
    }
    match cli.command {
        // The target's own threads, that of the log included, start within its bounds.
        Command::Serve(args) => cmd::serve::run(&args, output),
        Command::Reload(args) => cmd::reload::run(&args),
        Command::Share(args) => cmd::share::add(&args, output),
        Command::Unshare(args) => cmd::share::remove(&args, output),
        Command::Discover(args) => cmd::discover::run(&args, output),
        Command::Identify(args) => cmd::identify::run(&args, output),
        Command::Read(args) => cmd::read::run(&args, output),
        Command::Write(args) => cmd::write::run(&args, output),
        Command::Attach(args) => {
            let _ = control::process::open_files::raise();
            cmd::attach::run(&args, output)
        }
        Command::Attachments(args) => cmd::attachments::list(&args, output),
        Command::Detach(args) => cmd::attachments::detach(&args, output),
        Command::Calibrate(args) => match &args.live {
            Some(name) => cmd::calibrate_live::run(name, &args, output),
            None => cmd::calibrate::run(&args, output),
        },
        Command::Config(args) => cmd::config::run(&args, output),
        Command::Doctor(args) => cmd::doctor::run(&args, output),
        Command::Import(args) => cmd::import::run(&args, output),
        Command::Device(args) => cmd::device::run(&args, output),
        Command::Subsystem(args) => cmd::objects::subsystem(&args, output),
        Command::Namespace(args) => cmd::objects::namespace(&args, output),
        Command::Host(args) => cmd::objects::host(&args, output),
        Command::Listener(args) => cmd::objects::listener(&args, output),
        Command::Key(args) => cmd::key::run(&args, output),
        Command::SupportBundle(args) => cmd::support_bundle::run(&args, output),
        Command::Switch(args) => cmd::switch::run(&args, output),
        Command::Tenant(args) => cmd::tenant::run(&args, output),
        Command::Top(args) => cmd::top::run(&args, output),
        Command::Trace(args) => cmd::trace::run(&args, output),
        Command::Man(args) => cmd::man::run(&args, Cli::command(), output),
        Command::Completions(args) => cmd::completions::run(&args),
        Command::Bench(args) => {
            // What a load opens too many of is told by the one that cannot be opened.
            let _ = control::process::open_files::raise();
            cmd::bench::run(&args, output)
        }
    }
}
