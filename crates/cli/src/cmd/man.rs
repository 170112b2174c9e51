//! `switchyard man`: manual pages.

use crate::args::ManArgs;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Context as _, Result};
use clap::Command;
use serde::Serialize;

/// The pages that were written.
#[derive(Debug, Serialize)]
struct Written {
    /// Names of the files.
    pages: Vec<String>,
}

/// Writes a page for the program and for each of its commands.
///
/// # Errors
/// A directory that cannot be created or written to.
pub fn run(args: &ManArgs, mut program: Command, output: Output) -> Result<Outcome> {
    let directory = args.directory.display();
    std::fs::create_dir_all(&args.directory)
        .with_context(|| format!("cannot create directory {directory}"))?;
    program.build();
    let mut pages = Vec::new();
    write(&program, "switchyard".to_owned(), args, &mut pages)?;
    let text = format!("wrote {} pages to {directory}", pages.len());
    output.result(&Written { pages }, text)?;
    Ok(Outcome::Done)
}

/// Writes the page of a command and of those below it; `name` is all its words, joined by hyphens.
fn write(command: &Command, name: String, args: &ManArgs, pages: &mut Vec<String>) -> Result<()> {
    for below in command.get_subcommands() {
        if !below.is_hide_set() && below.get_name() != "help" {
            let name = format!("{name}-{}", below.get_name());
            write(below, name, args, pages)?;
        }
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .render(&mut page)
        .with_context(|| format!("cannot render page {name}"))?;
    let file = format!("{name}.1");
    let path = args.directory.join(&file);
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    pages.push(file);
    Ok(())
}
