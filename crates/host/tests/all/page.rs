//! The Rust code of the page for programmers (docs/guide/program.md): compiled, run, and compared
//! with the page.

use crate::setup;
use crate::setup::{block_on, start};
use host::{Class, Preset, Switchboard, SwitchboardOptions};
use std::error::Error;
use std::io::IoSlice;
use std::time::Duration;

type Outcome = Result<(), Box<dyn Error>>;

/// This part of the page is an example with a test of its own.
const ELSEWHERE: &str = "fn small_reads";

fn blocking_calls(address: &str) -> Outcome {
    let (head, body) = ([1; 4096], [2; 8192]);
    let host = host::Host::builder().build()?;
    let subsystem = host.connect(address, "nqn.2026-11.io.switchyard:default")?;
    let disk = subsystem.namespace(1)?; // or namespace_with(1, Class::Latency)
    disk.write(0, &[7; 4096])?; // offset and length: multiples of disk.block_bytes()
    disk.flush()?; // earlier writes are durable when this returns
    disk.read(0, &mut [0; 4096])?;
    disk.write_durable(4096, &[8; 4096])?; // FUA: durable when it returns
    disk.write_vectored(8192, &[IoSlice::new(&head), IoSlice::new(&body)], false)?;
    disk.discard(0, 4096)?;
    let mut back = [0; 12288];
    disk.read(8192, &mut back)?;
    assert_eq!((back[4095], back[4096]), (1, 2));
    Ok(())
}

fn a_queue(disk: &host::Namespace) -> Outcome {
    let mut queue = disk.queue(128)?; // maximum requests in flight
    for tag in 0..128 {
        queue.read(tag, tag * 4096, 4096)?;
    }
    for done in queue.wait(1)? {
        // submits; waits for at least one completion
        done.result?;
        println!(
            "{} brought {} bytes",
            done.tag,
            done.data.expect("data of a read").len()
        );
    }
    Ok(())
}

async fn futures(subsystem: &host::Subsystem) -> Outcome {
    let disk = subsystem.namespace(1)?.asynchronous();
    let data = disk.write(0, vec![7; 4096]).await?; // returns the buffer
    disk.flush().await?;
    let data = disk.read(0, data).await?;
    assert_eq!(data, [7; 4096]);
    Ok(())
}

fn knobs_and_counters() -> Result<Switchboard, Box<dyn Error>> {
    let mut options = SwitchboardOptions::of_process()?;
    options.knobs = Preset::Linux.knobs();
    options
        .knobs
        .change([("doorbell", "immediate"), ("prioritisation", "on")])?;
    let board = Switchboard::start(&options)?;
    board.change_knobs([("doorbell", "fixed"), ("doorbell_delay_us", "100")])?; // atomically
    println!("{}", board.knobs().text("doorbell")?);
    for (name, value) in board.named_counters(None)? {
        // or of one core
        println!("{name} {value}");
    }
    Ok(board)
}

fn a_hurried_call(disk: &host::Namespace) -> Outcome {
    let mut data = [0; 4096];
    let hurried = disk.with_timeout(Duration::from_millis(100)); // applies to this handle's calls and futures
    hurried.read(0, &mut data)?;
    Ok(())
}

fn limits(disk: host::Namespace, queue: &mut host::Queue) -> Outcome {
    queue.set_timeout(Some(Duration::from_millis(100))); // of later submissions
    queue.read(7, 0, 4096)?;
    queue.cancel(7); // by tag
    let done = queue.wait(1)?.next();
    assert_eq!(done.unwrap().tag, 7);

    let (disk, canceller) = disk.cancellable(); // blocking calls and futures
    std::thread::spawn(move || disk.read(0, &mut [0; 4096]));
    canceller.cancel(); // from any thread
    Ok(())
}

#[test]
fn what_the_page_shows_runs() {
    let running = start(1);
    let address = running.addresses[0].to_string();
    blocking_calls(&address).unwrap();
    let host = host::Host::builder().build().unwrap();
    let subsystem = host.connect(&address, setup::NQN).unwrap();
    let disk = subsystem.namespace(1).unwrap();
    a_queue(&disk).unwrap();
    block_on(futures(&subsystem)).unwrap();
    let mut queue = disk.queue(8).unwrap();
    // The machine may be too slow for it.
    if let Err(error) = a_hurried_call(&disk) {
        assert!(error.to_string().contains("time"), "{error}");
    }
    limits(disk, &mut queue).unwrap();
}

#[test]
fn the_page_has_every_counter() {
    let page = include_str!("../../../../docs/guide/program.md");
    let board = knobs_and_counters().unwrap();
    for (name, _) in board.named_counters(None).unwrap() {
        let classes = Class::ALL.map(|class| format!("{class}_"));
        let mut classes = classes.iter();
        let plain = classes.find_map(|class| name.strip_prefix(class.as_str()));
        let plain = plain.unwrap_or(&name);
        assert!(page.contains(&format!("`{plain}`")), "{name}");
    }
}

/// Returns the words of the code without its layout.
fn words(code: &str) -> String {
    code.split_whitespace().collect()
}

#[test]
fn the_page_shows_what_runs() {
    let page = include_str!("../../../../docs/guide/program.md");
    // The page has an address for readers.
    let page = page.replace("\"127.0.0.1:4420\"", "address");
    let here = words(include_str!("page.rs"));
    let blocks: Vec<&str> = page
        .split("```rust,ignore\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|block| !block.contains(ELSEWHERE))
        .collect();
    assert_eq!(blocks.len(), 5);
    for block in blocks {
        // Compares line by line: between two lines, the code here checks the results.
        for line in block.lines() {
            let (code, _) = line.split_once("//").unwrap_or((line, ""));
            assert!(here.contains(&words(code)), "not in this file: {line}");
        }
    }
}
