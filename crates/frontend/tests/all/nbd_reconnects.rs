//! Clients that lose a connection with writes in flight, and repeat them on another connection.

use crate::gated::Gated;
use crate::nbd_client::{Client, FLUSH, READ, TRIM, WRITE};
use crate::nbd_servers::{BLOCK, options, ram, socket};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use switch::{Class, PerClass};
use switchyard_frontend::nbd::{NbdOptions, NbdServer};

/// Starts a server with two threads, to which clients are assigned in turn.
fn serve(device: &Arc<Gated>, path: &Path) -> NbdServer {
    let allowed = reactor::placement::allowed_cores().unwrap();
    let options = NbdOptions {
        cores: [allowed[0], *allowed.last().unwrap()].into(),
        ..options(path)
    };
    let devices = PerClass::from_fn(|_| Arc::clone(device) as _);
    NbdServer::start(&devices, &options).unwrap()
}

fn connect(path: &Path, class: Class) -> Client {
    let mut client = Client::greet(path);
    let name = class.properties().name;
    let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend([0, 0]);
    assert_eq!(client.option(7, &data).last(), Some(&1));
    client
}

fn send_write(client: &mut Client, cookie: u64, offset: u64, data: &[u8]) {
    client.send(WRITE, 0, cookie, (offset, data.len() as u64));
    client.stream.write_all(data).unwrap();
}

/// A write of a lost connection must not be executed after a later, flushed write of its client on
/// the other class or core.
#[test]
fn a_write_of_a_dead_connection_lands_before_its_repetition() {
    for [first, second] in [
        [Class::Throughput, Class::Throughput],
        [Class::Throughput, Class::Latency],
        [Class::Latency, Class::Throughput],
    ] {
        let (device, path) = (Gated::new(ram(), 1), socket());
        let _server = serve(&device, &path);
        let mut lost = connect(&path, first);
        send_write(&mut lost, 1, BLOCK, &[1; 8192]);
        device.wait_held(1);
        drop(lost);
        // On both threads, whichever one serves the first connection.
        let mut others = [connect(&path, second), connect(&path, second)];
        for (cookie, client) in (1..).zip(&mut others) {
            // Writes to separate blocks do not wait.
            assert_eq!(client.write(64 * BLOCK * cookie, &[9; 4096]), 0);
            send_write(client, cookie, BLOCK, &[2; 4096]);
            assert_eq!(client.error(FLUSH, (0, 0)), 0, "it waits for no write");
        }
        assert_eq!(device.writes(), 3, "those that overlap wait");
        device.open_gate();
        for (cookie, client) in (1..).zip(&mut others) {
            assert_eq!(client.reply(), (0, cookie));
        }
        assert_eq!(others[0].error(FLUSH, (0, 0)), 0);
        assert_eq!(others[1].read(BLOCK, 4096), [2; 4096]);
        assert_eq!(others[1].read(2 * BLOCK, 4096), [1; 4096]);
    }
}

/// Requests that change blocks without carrying data wait as well, and later writes wait for them.
#[test]
fn a_trim_waits_for_an_overlapping_write_of_another_connection() {
    let (device, path) = (Gated::new(ram(), 1), socket());
    let _server = serve(&device, &path);
    let mut lost = connect(&path, Class::Throughput);
    send_write(&mut lost, 1, 4 * BLOCK, &[1; 4096]);
    device.wait_held(1);
    drop(lost);
    let mut others = [(); 2].map(|()| connect(&path, Class::Throughput));
    others[0].send(TRIM, 0, 7, (0, 32 << 20));
    assert_eq!(others[0].error(FLUSH, (0, 0)), 0);
    // It does not overtake the waiting trim.
    send_write(&mut others[1], 8, 16 << 20, &[3; 4096]);
    assert_eq!(others[1].error(FLUSH, (0, 0)), 0);
    assert_eq!(device.writes(), 1);
    device.open_gate();
    assert_eq!(others[0].reply(), (0, 7));
    assert_eq!(others[1].reply(), (0, 8));
    assert_eq!(others[0].read(4 * BLOCK, 4096), [0; 4096]);
    assert_eq!(others[0].read(16 << 20, 4096), [3; 4096]);
}

/// The client orders overlapping writes of one connection.
#[test]
fn writes_of_one_connection_do_not_wait_for_each_other() {
    let (device, path) = (Gated::new(ram(), 1), socket());
    let _server = serve(&device, &path);
    let mut client = connect(&path, Class::Latency);
    send_write(&mut client, 1, 0, &[1; 4096]);
    device.wait_held(1);
    assert_eq!(client.write(0, &[2; 4096]), 0);
    device.open_gate();
    assert_eq!(client.reply(), (0, 1));
}

/// A connection at its limit of requests in flight, closed by its client with another write in its
/// socket: that write must not be executed after later ones.
#[test]
fn a_write_that_was_not_read_when_its_client_left_is_not_begun() {
    let (device, path) = (Gated::new(ram(), 256), socket());
    let server = serve(&device, &path);
    let mut lost = connect(&path, Class::Throughput);
    for cookie in 0..256 {
        send_write(&mut lost, cookie, (100 + cookie) * BLOCK, &[1; 4096]);
    }
    device.wait_held(256);
    send_write(&mut lost, 256, 0, &[1; 4096]);
    lost.send(READ, 0, 257, (0, BLOCK));
    drop(lost);
    let mut client = connect(&path, Class::Throughput);
    assert_eq!(client.write(0, &[2; 4096]), 0);
    assert_eq!(client.error(FLUSH, (0, 0)), 0);
    device.open_gate();
    while server.connections() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(client.read(0, 4096), [2; 4096]);
}
