//! The guide for programmers (docs/guide/program.md): its C examples, and its command that compiles
//! them, run as written.

use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::process::Command;
use switchyard_e2e::library::{Library, repository};
use switchyard_e2e::limits::COMMAND_DEADLINE;
use switchyard_e2e::process::{Process, Serve};
use switchyard_e2e::{Readiness, cache_directory, output_of, require_programs};

/// Returns the code blocks of the page in a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("\n```{language}\n");
    let blocks = page.split(&fence).skip(1);
    let until_end = |block: &str| block.split("\n```").next().map(str::to_owned);
    blocks.filter_map(until_end).collect()
}

/// Combines the page's four examples into a program: later examples use names of the first, and the
/// third uses one of the second.
fn program(page: &str, target: &str) -> Result<String> {
    let blocks = blocks(page, "c");
    let [queue, shared, knobs, limits] = &blocks[..] else {
        anyhow::bail!("the page has {} examples in C", blocks.len());
    };
    let (include, queue) = queue
        .split_once('\n')
        .context("it begins with its header")?;
    let queue = queue.replace("127.0.0.1:4420", target);
    ensure!(queue.contains(target), "it says which target: {queue}");
    Ok(format!(
        "#include <stdio.h>\n{include}\nint main(void) {{\n{queue}\n\
         if (count != 1 || done[0].result != 0 || done[0].user != data || data[0] != 7) return 1;\n\
         {{\n{limits}\nif (count < 1) return 2;\nsw_close(theirs);\n}}\n\
         sw_queue_destroy(queue);\n\
         {{\n{shared}\nif (count != 1 || done[0].result != 0) return 3;\n\
         sw_switchboard_destroy(board);\n{knobs}\n\
         if (known < 9 || known > 128 || doorbell[0] != 'f') return 4;\n\
         sw_switchboard_destroy(board);\n}}\nsw_queue_destroy(queue);\nsw_close(disk);\nsw_disconnect(target);\nreturn 0;\n}}\n"
    ))
}

/// Returns commands that install the library below `prefix`, as the packages do, and the page's command
/// that compiles with it.
fn commands(page: &str, library: &Path, prefix: &Path) -> Result<String> {
    let consoles = blocks(page, "console");
    let mut lines = consoles.iter().flat_map(|block| block.lines());
    let compile = lines.find_map(|line| line.strip_prefix("$ cc hello.c"));
    let compile = compile.context("the page says how to compile with the library")?;
    let (library, prefix) = (library.display(), prefix.display());
    Ok(format!(
        "install -D -m 644 crates/capi/include/switchyard.h {prefix}/include/switchyard.h
        install -D {library}/libswitchyard.so {prefix}/lib/libswitchyard.so.1
        ln -s libswitchyard.so.1 {prefix}/lib/libswitchyard.so
        install -d {prefix}/lib/pkgconfig
        sed 's|@PREFIX@|{prefix}|; s|@VERSION@|1|' crates/capi/switchyard.pc.in \
            > {prefix}/lib/pkgconfig/switchyard.pc
        cc -Wall -Werror $0 -o $1{compile}"
    ))
}

#[test]
fn the_c_examples_are_compiled_and_run() -> Result<()> {
    if require_programs(&["cc", "pkg-config"])? == Readiness::Skip {
        return Ok(());
    }
    let page = std::fs::read_to_string(repository().join("docs/guide/program.md"))?;
    let library = Library::build()?;
    let target = Serve::start(&["--ram", "16M"])?;
    let folder = cache_directory("page")?;
    std::fs::remove_dir_all(&folder)?;
    std::fs::create_dir(&folder)?;
    let (source, built) = (folder.join("example.c"), folder.join("example"));
    std::fs::write(&source, program(&page, &target.address().to_string())?)?;

    let prefix = folder.join("prefix");
    let mut shell = Command::new("sh");
    shell.current_dir(repository()).arg("-ec");
    shell.arg(commands(&page, library.folder(), &prefix)?);
    shell.arg(&source).arg(&built);
    output_of(shell.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")))?;

    let mut example = Command::new(&built);
    example.env("LD_LIBRARY_PATH", prefix.join("lib"));
    Process::start(&mut example)?.succeed(COMMAND_DEADLINE)?;
    target.stop()?;
    Ok(())
}
