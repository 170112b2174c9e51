//! The one binary: the target, the host for people and scripts, and the load generator.
//!
//! What is this: it reads the command line, and hands it to the module of its command. It owns
//! the process: its logs, its output, its exit code. The libraries below neither print nor log
//! where they pass an error on.

// A binary has no public interface: what modules share is as visible as it needs to be.
#![allow(unreachable_pub)]

mod args;
mod cmd;
mod exit;
mod log;
mod output;
mod screen;

use args::{Cli, Command};
use clap::{CommandFactory as _, FromArgMatches as _};
use exit::Outcome;
use output::Output;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let code = exit::code(start_log(&cli).and_then(|()| run(cli, &matches)));
    log::flush();
    code
}

fn run(cli: Cli, matches: &clap::ArgMatches) -> anyhow::Result<Outcome> {
    let output = Output {
        json: cli.common.json,
    };
    if matches!(cli.command, Command::Attach(_)) {
        frontend::passed_sockets::take()?;
    }
    if !matches!(cli.command, Command::Serve(_)) {
        log::begin()?;
    }
    match cli.command {
        // The target's own threads, that of the log included, start within its bounds.
        Command::Serve(mut args) => {
            let matches = matches
                .subcommand_matches("serve")
                .expect("the command was found");
            args.order(matches);
            cmd::serve::run(&args, output)
        }
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
            #[cfg(feature = "lab")]
            None => cmd::calibrate::run(&args, output),
            #[cfg(not(feature = "lab"))]
            None => anyhow::bail!(
                "this program was built without its laboratory, and calibrates with --live only; \
                 build it with the feature \"lab\""
            ),
        },
        Command::Config(args) => cmd::config::run(&args, output),
        Command::Switch(args) => cmd::switch::run(&args, output),
        Command::Tenant(args) => cmd::tenant::run(&args, output),
        Command::Top(args) => cmd::top::run(&args, output),
        Command::Man(args) => cmd::man::run(&args, Cli::command(), output),
        #[cfg(feature = "lab")]
        Command::Sim(args) => cmd::sim::run(&args, output),
        #[cfg(feature = "lab")]
        Command::Figure(args) => {
            let _ = control::process::open_files::raise();
            cmd::figure::run(&args, output)
        }
        Command::Bench(args) => {
            // What a load opens too many of is told by the one that cannot be opened.
            let _ = control::process::open_files::raise();
            #[cfg(feature = "lab")]
            if let Some(command) = &args.command {
                return cmd::bench_lab::run(command, output);
            }
            cmd::bench::run(&args.load, output)
        }
    }
}

fn start_log(cli: &Cli) -> anyhow::Result<()> {
    #[cfg(feature = "lab")]
    let is_simulated = matches!(cli.command, Command::Sim(_));
    #[cfg(not(feature = "lab"))]
    let is_simulated = false;
    // Simulated hosts and targets log each of the faults that they are there to suffer.
    let default = if is_simulated { "off" } else { "warn" };
    let from_env = || {
        std::env::var("SWITCHYARD_LOG")
            .ok()
            .filter(|filter| !filter.is_empty())
    };
    let filter = cli
        .common
        .log
        .clone()
        .or_else(from_env)
        .unwrap_or_else(|| default.to_owned());
    let parsed = EnvFilter::builder().parse(&filter).map_err(|error| {
        anyhow::anyhow!(
            "\"{filter}\" does not say what to log ({error}); write a level such as info, or \
             MODULE=LEVEL,... (--log, or the environment variable SWITCHYARD_LOG)"
        )
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .fmt_fields(log::fields())
        .with_writer(log::start())
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    Ok(())
}
