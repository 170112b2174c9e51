//! Counts, split messages, full socket buffers, and ends that disconnect. No test asserts a time.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use proptest::prelude::*;

use reactor::placement::PlacementError;

use super::client::run_tuned;
use super::message::{Message, Parser};
use super::outbox::{Outbox, Sent};
use super::region::Region;
use super::server::{answer_tuned, served_bytes};
use super::*;

const SHORT: Duration = Duration::from_millis(50);

fn small(mut case: RawCase) -> RawCase {
    case.region_bytes = 1 << 20;
    case
}

/// Less than the data in flight in the tests, but more than the largest segment of the loopback
/// device: with a receive buffer smaller than one segment, TCP waits for its timers.
const SMALL_BUFFER_BYTES: usize = 96 << 10;

/// Two ends of a loopback connection with small buffers.
fn small_sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // An accepted socket inherits the listener's receive buffer.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, SMALL_BUFFER_BYTES).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        rustix::net::sockopt::set_socket_send_buffer_size(stream, SMALL_BUFFER_BYTES).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(stream, SMALL_BUFFER_BYTES).unwrap();
    }
    (client, server)
}

/// Returns the first run with exchanges. Each run is twice as long as the previous one, because two
/// polling threads may keep each other from the processor until the end of a short run.
fn until_exchanges(
    run: impl Fn(Duration) -> (RawResult, ServerReport),
) -> (RawResult, ServerReport) {
    let times = std::iter::successors(Some(SHORT), |time| Some(*time * 2));
    let mut runs = times.take(8).map(run);
    let done = runs.find(|(result, _)| result.exchanges > 0);
    done.expect("exchanges within seconds")
}

fn run_small(case: RawCase) -> (RawResult, ServerReport) {
    let case = small(case);
    until_exchanges(|time| {
        let server = RawServer::start(case, None).unwrap();
        let result = run_client(&case, server.addr(), None, Duration::ZERO, time).unwrap();
        (result, server.finish().unwrap())
    })
}

#[test]
fn every_case_exchanges_and_both_ends_agree_on_the_count() {
    // Polling ends that share cores are slow, but they terminate.
    for case in [
        RawCase::read_4k_qd128(),
        RawCase::write_4k_qd128(),
        RawCase::read_128k_qd8(),
        RawCase::read_4k_qd1_polling(),
        RawCase::read_4k_qd1_one_core(),
    ] {
        let (result, report) = run_small(case);
        // The server has also answered requests before and after the measured time.
        assert!(report.exchanges >= result.exchanges, "{}", case.name);
        assert!(
            result.latency_us.p50 <= result.latency_us.max,
            "{}",
            case.name
        );
        assert!(result.exchanges_per_second > 0.0, "{}", case.name);
    }
}

#[test]
fn an_exchange_over_many_connections_counts_and_ends() {
    for payload in [0, 4096, 200_000] {
        let raw = small(RawCase::read("many", payload, 7, Poll::Never));
        let connections = 20;
        let case = ManyCase { raw, connections };
        let result = run_many(&case, None, None, Duration::ZERO, SHORT).unwrap();
        assert!(result.exchanges > 0, "{payload}");
        assert!(result.latency_us.avg > 0.0, "{payload}");
    }
    let raw = small(RawCase::read("many", 0, 7, Poll::Never));
    for connections in [7, 1 << 20] {
        let case = ManyCase { raw, connections };
        let error = run_many(&case, None, None, Duration::ZERO, SHORT).unwrap_err();
        let says = format!("connections is {connections}, but must be 8 to");
        assert!(error.to_string().contains(&says), "{error}");
    }
}

#[test]
fn the_loop_keeps_going_when_sends_are_partial_on_both_sides() {
    for poll in [Poll::Always, Poll::Never] {
        for mut case in [
            RawCase::read("r", 4096, 128, poll),
            RawCase::write("w", 65_536, 32, poll),
        ] {
            case = small(case);
            let (result, report) = until_exchanges(|time| {
                let (client, server) = small_sockets();
                std::thread::scope(|scope| {
                    let answering = scope.spawn(|| {
                        let region = Region::new(served_bytes(&case));
                        let report = answer_tuned(&server, &case, &region);
                        drop(server);
                        report
                    });
                    let result = run_tuned(&client, &case, Duration::ZERO, time).unwrap();
                    (result, answering.join().unwrap().unwrap())
                })
            });
            assert!(
                report.exchanges >= result.exchanges,
                "{} {poll:?}",
                case.name
            );
        }
    }
}

/// Bytes that a connection of [`small_sockets`] accepts while its peer reads nothing. Kernels grant
/// different fractions of the requested buffer sizes.
fn bytes_taken_unread() -> usize {
    let (_client, mut server) = small_sockets();
    server.set_nonblocking(true).unwrap();
    let piece = vec![0; SMALL_BUFFER_BYTES];
    std::iter::from_fn(|| server.write(&piece).ok()).sum()
}

#[test]
fn a_send_that_the_socket_takes_in_parts_loses_and_repeats_nothing() {
    let (mut client, server) = small_sockets();
    let count = 64;
    let payload_bytes = 4 * bytes_taken_unread() / count;
    let mut region = Region::new(payload_bytes * count);
    for (index, block) in region
        .bytes_mut()
        .chunks_exact_mut(payload_bytes)
        .enumerate()
    {
        block.fill(u8::try_from(index).unwrap());
    }
    let mut outbox = Outbox::new(24, payload_bytes, count);
    let mut expected = Vec::new();
    for index in 0..count {
        let message = Message {
            sequence: index as u64,
            block: 0,
        };
        let mut header = [0; 24];
        message.encode(&mut header);
        expected.extend_from_slice(&header);
        expected.extend_from_slice(&region.bytes()[index * payload_bytes..][..payload_bytes]);
        outbox.push(message, index * payload_bytes);
    }
    // A reader that ran concurrently with the first send could make room as fast as it is filled.
    assert_eq!(outbox.send(&server, region.bytes()).unwrap(), Sent::Part);
    let wanted = expected.len();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; wanted];
        client.read_exact(&mut got).unwrap();
        got
    });
    while outbox.send(&server, region.bytes()).unwrap() == Sent::Part {
        assert!(!outbox.is_empty());
        std::thread::yield_now();
    }
    assert!(outbox.is_empty());
    assert_eq!(outbox.room(), count);
    assert!(
        reader.join().unwrap() == expected,
        "the stream is not what was pushed"
    );
}

#[test]
fn an_outbox_with_a_part_waiting_takes_no_more() {
    let (_client, server) = small_sockets();
    let region = Region::new(1 << 20);
    let mut outbox = Outbox::new(24, 1 << 20, 4);
    while outbox.room() > 0 {
        outbox.push(
            Message {
                sequence: 0,
                block: 0,
            },
            0,
        );
    }
    assert_eq!(outbox.send(&server, region.bytes()).unwrap(), Sent::Part);
    assert_eq!(outbox.room(), 0);
}

#[test]
fn a_client_notices_a_server_that_closes() {
    for poll in [Poll::Always, Poll::Never] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let closing = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Read all data, so that the close is an orderly end and not a reset.
            stream.read_exact(&mut [0; 72 * 4]).unwrap();
        });
        let case = small(RawCase::read("closing", 4096, 4, poll));
        let error = run_client(&case, addr, None, Duration::ZERO, SHORT).unwrap_err();
        closing.join().unwrap();
        assert!(
            matches!(error, RawError::Closed { outstanding: 4 }),
            "{error:?}"
        );
    }
}

#[test]
fn a_client_refuses_what_is_not_a_response() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    let case = small(RawCase::write("w", 4096, 1, Poll::Never));
    let answering = std::thread::spawn(move || {
        for response in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [7; 24];
            if response == 1 {
                Message {
                    sequence: 1,
                    block: 0,
                }
                .encode(&mut bytes);
            }
            stream.write_all(&bytes).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    for says in ["begins with 0x0707070707070707", "response 1 instead of 0"] {
        let error = run_client(&case, addr, None, Duration::ZERO, SHORT).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    answering.join().unwrap();
}

#[test]
fn a_server_refuses_garbage_excess_and_half_a_request() {
    let case = small(RawCase::read("r", 4096, 2, Poll::Never));
    let mut request = [0; 72];
    Message {
        sequence: 0,
        block: u64::MAX,
    }
    .encode(&mut request);
    let inputs: [(&[u8], &str); 3] = [
        (&[1; 72], "begins with 0x0101010101010101"),
        (&request.repeat(3), "more than 2 requests in flight"),
        (&request[..71], "closed the connection"),
    ];
    for (input, says) in inputs {
        let server = RawServer::start(case, None).unwrap();
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.write_all(input).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // The server's end, even by an error, closes the connection.
        let _ = stream.read_to_end(&mut Vec::new());
        let error = server.finish().unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_block_number_outside_the_region_is_answered_from_inside_it() {
    let case = small(RawCase::read("r", 4096, 2, Poll::Never));
    let server = RawServer::start(case, None).unwrap();
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    let mut request = [0; 72];
    Message {
        sequence: 5,
        block: u64::MAX,
    }
    .encode(&mut request);
    stream.write_all(&request).unwrap();
    let mut response = vec![0; 24 + 4096];
    stream.read_exact(&mut response).unwrap();
    drop(stream);
    assert_eq!(server.finish().unwrap().exchanges, 1);
}

#[test]
fn the_server_s_own_error_is_what_a_pair_reports() {
    let case = RawCase {
        depth: 0,
        ..small(RawCase::read_4k_qd128())
    };
    let error = run_pair(&case, None, None, Duration::ZERO, SHORT).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("depth is 0, but must be 1 to 1024"),
        "{error}"
    );

    let case = small(RawCase::read_4k_qd1_one_core());
    let far = 1 << 20;
    let error = run_pair(&case, Some(far), None, Duration::ZERO, SHORT).unwrap_err();
    assert!(
        matches!(
            error,
            RawError::Pin(PlacementError::NotAllowed { core, .. }) if core.0 as usize == far
        ),
        "{error:?}"
    );
    let error = run_pair(&case, None, Some(far), Duration::ZERO, SHORT).unwrap_err();
    assert!(
        matches!(
            error,
            RawError::Pin(PlacementError::NotAllowed { core, .. }) if core.0 as usize == far
        ),
        "{error:?}"
    );
}

#[test]
fn a_server_can_be_dropped_before_and_while_it_serves() {
    let case = small(RawCase::read_4k_qd1_one_core());
    drop(RawServer::start(case, None).unwrap());

    let server = RawServer::start(case, None).unwrap();
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    let mut request = [0; 72];
    Message {
        sequence: 0,
        block: 0,
    }
    .encode(&mut request);
    stream.write_all(&request).unwrap();
    stream.read_exact(&mut [0; 24]).unwrap();
    drop(server);
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn both_ends_work_on_a_listener_of_somebody_else() {
    let case = small(RawCase::read_4k_qd1_one_core());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || serve(&listener, &case));
    let result = run_client(&case, addr, None, SHORT, SHORT).unwrap();
    assert!(serving.join().unwrap().unwrap().exchanges >= result.exchanges);
}

#[test]
fn a_case_out_of_range_is_refused_with_its_range() {
    let good = RawCase::read_4k_qd128();
    for (case, says) in [
        (
            RawCase {
                request_bytes: 71,
                ..good
            },
            "request_bytes is 71",
        ),
        (
            RawCase {
                response_bytes: 0,
                ..good
            },
            "response_bytes is 0",
        ),
        (
            RawCase {
                depth: 1025,
                ..good
            },
            "depth is 1025",
        ),
        (
            RawCase {
                messages_per_send: 65,
                ..good
            },
            "messages_per_send is 65",
        ),
        (
            RawCase {
                region_bytes: 4095,
                ..good
            },
            "region_bytes is 4095",
        ),
    ] {
        let error = RawServer::start(case, None).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

proptest! {
    #[test]
    fn messages_are_found_however_the_stream_is_torn(
        payload in 0_usize..200,
        long_header: bool,
        blocks in prop::collection::vec(any::<u64>(), 1..20),
        cuts in prop::collection::vec(1_usize..150, 1..200),
    ) {
        let header_bytes = if long_header { 72 } else { 24 };
        let mut stream = Vec::new();
        let mut sent = Vec::new();
        for (sequence, &block) in (0..).zip(&blocks) {
            let message = Message { sequence, block };
            let mut bytes = vec![0; header_bytes + payload];
            message.encode(&mut bytes);
            stream.extend_from_slice(&bytes);
            sent.push(message);
        }
        let mut parser = Parser::new(header_bytes, payload);
        let mut found = Vec::new();
        let mut rest = &stream[..];
        for cut in cuts.into_iter().cycle() {
            let (piece, left) = rest.split_at(cut.min(rest.len()));
            parser.feed(piece, |message| { found.push(message); Ok(()) }).unwrap();
            let given = stream.len() - left.len();
            prop_assert_eq!(found.len(), given / (header_bytes + payload));
            prop_assert_eq!(parser.is_inside(), given % (header_bytes + payload) > 0);
            rest = left;
            if rest.is_empty() { break; }
        }
        prop_assert_eq!(found, sent);
    }
}

mod comparison {
    use load::RunSummary;
    use std::cell::RefCell;

    use super::super::*;

    /// `compare` without notes.
    fn compare(
        case: &str,
        metric: Metric,
        runs: usize,
        ours: &mut dyn FnMut() -> anyhow::Result<f64>,
        limit: &mut dyn FnMut() -> anyhow::Result<f64>,
    ) -> anyhow::Result<CaseReport> {
        super::super::compare(case, metric, runs, ours, limit, &|_| {})
    }

    fn from(values: &[f64]) -> impl FnMut() -> anyhow::Result<f64> + use<> {
        let mut values = Vec::from(values).into_iter();
        move || Ok(values.next().expect("no more runs than asked for"))
    }

    #[test]
    fn fractions_are_of_pairs_and_medians_of_columns() {
        let report = compare(
            "read",
            Metric::RequestsPerSecond,
            3,
            &mut from(&[80.0, 45.0, 300.0]),
            &mut from(&[100.0, 50.0, 300.0]),
        )
        .unwrap();
        assert_eq!(report.ours, 80.0);
        assert_eq!(report.limit, 100.0);
        assert_eq!(
            report.fraction,
            RunSummary {
                median: 0.9,
                min: 0.8,
                max: 1.0
            }
        );
        assert_eq!(report.better, Better::Higher);
    }

    #[test]
    fn an_even_number_of_runs_has_the_mean_of_the_middle_two() {
        let (mut ours, mut limit) = (from(&[4.0, 1.0, 2.0, 8.0]), from(&[1.0, 1.0, 1.0, 1.0]));
        let report = compare("p50", Metric::P50Us, 4, &mut ours, &mut limit).unwrap();
        assert_eq!(report.ours, 3.0);
        assert_eq!(
            report.fraction,
            RunSummary {
                median: 3.0,
                min: 1.0,
                max: 8.0
            }
        );
    }

    #[test]
    fn the_two_of_a_pair_take_turns_at_going_first() {
        let order = RefCell::new(String::new());
        let run = |who: char| {
            order.borrow_mut().push(who);
            Ok(1.0)
        };
        let (mut ours, mut limit) = (|| run('o'), || run('l'));
        compare("order", Metric::RequestsPerSecond, 3, &mut ours, &mut limit).unwrap();
        assert_eq!(order.into_inner(), "ollool");
    }

    #[test]
    fn a_run_without_a_number_is_an_error_that_says_which() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let (mut ours, mut limit) = (from(&[1.0, bad]), from(&[1.0, 1.0]));
            let error = compare("c", Metric::P50Us, 2, &mut ours, &mut limit).unwrap_err();
            assert!(
                error.to_string().contains("c: our run 2 measured"),
                "{error}"
            );
        }
        let error = compare("c", Metric::P50Us, 1, &mut from(&[1.0]), &mut || {
            anyhow::bail!("the port is gone")
        })
        .unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "c: the limit's run 1 failed: the port is gone"
        );
        let error = compare("c", Metric::P50Us, 0, &mut from(&[]), &mut from(&[])).unwrap_err();
        assert!(
            error.to_string().contains("choose 1 to 1000 runs, not 0"),
            "{error}"
        );
    }

    #[test]
    fn the_json_of_a_case_has_the_promised_shape() {
        let case = compare(
            "p50",
            Metric::P50Us,
            1,
            &mut from(&[12.5]),
            &mut from(&[10.0]),
        )
        .unwrap();
        let expected = serde_json::json!({
            "case": "p50", "unit": "µs p50", "better": "lower", "runs": 1,
            "ours": 12.5, "limit": 10.0,
            "fraction": {"median": 1.25, "min": 1.25, "max": 1.25},
        });
        assert_eq!(serde_json::to_value(case).unwrap(), expected);
    }
}
