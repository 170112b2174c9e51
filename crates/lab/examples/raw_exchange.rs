//! Runs the raw socket exchange and prints the rate and latency of this machine's sockets.
//!
//! ```text
//! raw_exchange [--seconds S] [CASE…]      both ends as threads of this process
//! raw_exchange serve ADDR CASE            the server's end, for one client
//! raw_exchange connect ADDR CASE          the client's end
//! ```
//!
//! The server runs on core 0 and the client on core 1, except in cases that share core 0.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use switchyard_lab::limit::{RawCase, RawResult, run_client, run_pair, serve};

const WARMUP: Duration = Duration::from_millis(500);

/// A case and the cores of its server and its client.
const CASES: [(RawCase, usize, usize); 5] = [
    (RawCase::read_4k_qd128(), 0, 1),
    (RawCase::write_4k_qd128(), 0, 1),
    (RawCase::read_128k_qd8(), 0, 1),
    (RawCase::read_4k_qd1_polling(), 0, 1),
    (RawCase::read_4k_qd1_one_core(), 0, 0),
];

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut measured = Duration::from_secs(2);
    if let Some(at) = arguments
        .iter()
        .position(|argument| argument == "--seconds")
    {
        let seconds = arguments.get(at + 1).context("--seconds takes a number")?;
        measured = Duration::try_from_secs_f64(seconds.parse()?)?;
        arguments.drain(at..at + 2);
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", addr, name] => {
            let listener = TcpListener::bind(addr)?;
            println!("listening on {}", listener.local_addr()?);
            let report = serve(&listener, &find(name)?.0)?;
            println!(
                "{} exchanges, {:.2} CPU s",
                report.exchanges, report.cpu_seconds
            );
        }
        ["connect", addr, name] => {
            let (case, _, core) = find(name)?;
            let addr: SocketAddr = addr.parse()?;
            let result = run_client(&case, addr, Some(core), WARMUP, measured)?;
            print(&case, &result, None);
        }
        _ => {
            let mut cases = words
                .iter()
                .map(|name| find(name))
                .collect::<Result<Vec<_>>>()?;
            if cases.is_empty() {
                cases = CASES.to_vec();
            }
            for (case, server_core, client_core) in cases {
                let pair = run_pair(
                    &case,
                    Some(server_core),
                    Some(client_core),
                    WARMUP,
                    measured,
                )?;
                print(&case, &pair.client, Some(pair.server_cpu_seconds));
            }
        }
    }
    Ok(())
}

fn find(name: &str) -> Result<(RawCase, usize, usize)> {
    let Some(found) = CASES.iter().find(|(case, _, _)| case.name == name) else {
        let names: Vec<&str> = CASES.iter().map(|(case, _, _)| case.name).collect();
        bail!("no case {name}; there are {}", names.join(", "));
    };
    Ok(*found)
}

fn print(case: &RawCase, result: &RawResult, server_cpu: Option<f64>) {
    let bytes = (case.request_bytes + case.response_bytes) as f64;
    let rate = result.exchanges_per_second;
    let latency = &result.latency_us;
    println!(
        "{:<22} {:>9.1} K/s {:>6.1} Gbit/s  avg {:>7.1}  p50 {:>7.1}  p99 {:>7.1}  p99.9 {:>7.1}  max {:>8.1} µs  \
         CPU s: client {:.2}{}",
        case.name,
        rate / 1e3,
        rate * bytes * 8.0 / 1e9,
        latency.avg,
        latency.p50,
        latency.p99,
        latency.p999,
        latency.max,
        result.cpu_seconds,
        server_cpu.map_or(String::new(), |seconds| format!(", server {seconds:.2}")),
    );
}
