//! The server of the interface: who gets in, by which way, and how many at a time.

// The whole file is a test program, and a panic is how a test fails.

use crate::common::{Scratch, TOKEN, TOML, control, exchange, get, request, send, serve};
use config::schema::{ApiAddress, ApiLimits};
use config::{Format, parse};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switchyard_control::server::{Server, ServerOptions, run};
use switchyard_control::socket_access::SocketAccess;
use switchyard_control::{ServerError, Token};

#[test]
fn pages_of_other_origins_are_kept_out() {
    let (control, _plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let ApiAddress::Loopback(address) = *server.address().unwrap() else {
        panic!("a loopback address was asked for");
    };
    let port = address.port();
    let with = |headers: String| {
        let token = format!("Authorization: Bearer {TOKEN}\r\n");
        let text = format!("GET /v1/config HTTP/1.1\r\nConnection: close\r\n{token}{headers}\r\n");
        exchange(&ApiAddress::Loopback(address), text.as_bytes())
    };
    for good in [
        format!("Host: {address}\r\n"),
        format!("Host: localhost:{port}\r\n"),
        "Host: LOCALHOST\r\n".to_owned(),
        format!("Host: [::1]:{port}\r\n"),
        format!("Host: {address}\r\nSec-Fetch-Site: none\r\n"),
        format!("Host: {address}\r\nSec-Fetch-Site: same-origin\r\n"),
        format!("Host: {address}\r\nOrigin: http://{address}\r\n"),
    ] {
        assert_eq!(with(good.clone()).status, 200, "{good}");
    }
    for bad in [
        String::new(),
        format!("Host: rebound.example:{port}\r\n"),
        format!("Host: localhost.example:{port}\r\n"),
        format!("Host: 192.0.2.1:{port}\r\n"),
        format!("Host: localhost:{}\r\n", port ^ 1),
        format!("Host: {address}\r\nOrigin: http://localhost:{port}\r\n"),
        format!("Host: {address}\r\nOrigin: http://{address}.example\r\n"),
        format!("Host: {address}\r\nOrigin: null\r\n"),
        format!("Host: {address}\r\nSec-Fetch-Site: cross-site\r\n"),
    ] {
        with(bad).error(403);
    }
    // The page itself needs no token and may be linked to; by another name it is not served.
    let page = |host: String| {
        let text = format!(
            "GET / HTTP/1.1\r\nConnection: close\r\nHost: {host}\r\nSec-Fetch-Site: cross-site\r\n\r\n"
        );
        exchange(&ApiAddress::Loopback(address), text.as_bytes()).status
    };
    assert_eq!(page(address.to_string()), 200);
    assert_eq!(page(format!("rebound.example:{port}")), 403);
}

#[test]
fn a_unix_socket_has_the_mode_and_the_group_that_are_given() {
    let scratch = Scratch::new("access");
    let path = scratch.0.join("api.sock");
    let (control, _plane) = control(TOML);
    let own = std::fs::metadata(&scratch.0).unwrap().gid();
    for (mode, group, expected) in [
        (Some("0606"), None, 0o606),
        (None, Some(own), 0o660),
        (Some("0640"), Some(own), 0o640),
    ] {
        let access = SocketAccess {
            mode: mode.map(|mode| mode.parse().unwrap()),
            group,
        };
        let options = ServerOptions {
            access,
            ..options(&format!("unix:{}", path.display()))
        };
        let server = run(control.clone(), options, || {}).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o777, found.gid()), (expected, own));
        server.stop();
    }
}

#[test]
fn the_interface_s_socket_has_a_mode_and_a_group() {
    let text = "api = \"unix:/a\"\napi_socket_mode = \"0660\"\napi_socket_group = \"root\"\n";
    let configuration = parse(text, Format::Toml).unwrap();
    assert_eq!(configuration.api_socket_mode, "0660".parse().ok());
    assert_eq!(configuration.api_socket_group, Some(0));
    for (text, expected) in [
        (
            "api_socket_mode = \"0660\"",
            "api_socket_mode: has no Unix socket; write api = \"unix:",
        ),
        (
            "api = \"127.0.0.1:1\"\napi_socket_group = 3",
            "api_socket_group: has no Unix socket; write api = \"unix:",
        ),
        (
            "api_socket_mode = 660",
            "api_socket_mode: the integer 660 cannot stand here; write permission bits in quotes",
        ),
        (
            "api_socket_mode = \"rw\"",
            "api_socket_mode: the text \"rw\" cannot stand here; write permission bits in octal",
        ),
        (
            "api_socket_group = \"no such group\"",
            "api_socket_group: the text \"no such group\" cannot stand here; no group in",
        ),
    ] {
        let found = parse(text, Format::Toml).unwrap_err().to_string();
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn a_unix_socket_is_for_its_owner_alone_and_goes_with_the_server() {
    let scratch = Scratch::new("unix");
    let path = scratch.0.join("api.sock");
    let (control, _plane) = control(TOML);
    let api = format!("unix:{}", path.display());
    let server = serve(&control, &api);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(get(&server, "/v1/devices").status, 200);
    let page = request(
        &server,
        "GET",
        "/v1/devices",
        "Origin: http://a.example\r\n",
        "",
    );
    page.error(403);

    // While it is served nobody else takes it; afterwards it is gone.
    let error = run(control.clone(), options(&api), || {})
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("another program serves it; choose another path"),
        "{error}"
    );
    server.stop();
    assert!(!path.exists());

    // A socket that a dead program left behind is in nobody's way; a file is.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    serve(&control, &api).stop();
    std::fs::write(&path, "precious").unwrap();
    let error = run(control.clone(), options(&api), || {})
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("something that is no socket is there"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    let nowhere = format!("unix:{}/none/a.sock", scratch.0.display());
    let error = run(control, options(&nowhere), || {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("create its directory"), "{error}");
}

fn options(api: &str) -> ServerOptions {
    ServerOptions {
        api: Some(api.parse().unwrap()),
        token: Some(Token::new(TOKEN).unwrap()),
        ..ServerOptions::default()
    }
}

/// Limits with these times for a first request, and without traffic, in milliseconds.
fn times(request: u64, idle: u64) -> ApiLimits {
    ApiLimits {
        request_timeout_ms: request,
        idle_timeout_ms: idle,
        ..ApiLimits::default()
    }
}

#[test]
fn a_busy_port_and_the_open_world_are_refused() {
    let (control, _plane) = control(TOML);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = run(control.clone(), options(&address), || {})
        .unwrap_err()
        .to_string();
    assert!(error.contains(&address), "{error}");
    assert!(
        error.contains("another program has this port; choose another one"),
        "{error}"
    );
    let open = ServerOptions {
        api: Some(ApiAddress::Loopback("0.0.0.0:0".parse().unwrap())),
        ..options("127.0.0.1:0")
    };
    let error = run(control.clone(), open, || {}).unwrap_err().to_string();
    assert!(
        error.contains("use a loopback address, a Unix socket, or https with a certificate"),
        "{error}"
    );
    let pinned = ServerOptions {
        cpus: Some(vec![1_000_000]),
        ..ServerOptions::default()
    };
    let error = run(control, pinned, || {}).unwrap_err();
    assert!(matches!(error, ServerError::Pin(_)), "{error}");
}

/// Any user of the machine reaches a loopback port, and once could do what the owner can.
#[test]
fn over_tcp_only_those_who_know_the_token_are_served() {
    let (control, _plane) = control(TOML);
    let open = ServerOptions {
        token: None,
        ..options("127.0.0.1:0")
    };
    let error = run(control.clone(), open, || {}).unwrap_err().to_string();
    assert!(error.contains("SWITCHYARD_API_TOKEN"), "{error}");
    let server = serve(&control, "127.0.0.1:0");
    let address = server.address().unwrap();
    let almost = format!("Authorization: Bearer {}x\r\n", &TOKEN[..15]);
    let longer = format!("Authorization: Bearer {TOKEN}x\r\n");
    let basic = format!("Authorization: {TOKEN}\r\n");
    for (path, shown) in [
        ("/healthz", ""),
        ("/metrics", &almost),
        ("/v1/config", &longer),
        ("/nowhere", &basic),
    ] {
        let text =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{shown}\r\n");
        let refused = exchange(address, text.as_bytes());
        assert!(
            refused.head.contains("www-authenticate: bearer"),
            "{refused:?}"
        );
        refused.error(401);
    }
    assert_eq!(get(&server, "/v1/config").status, 200);
    for scheme in ["bearer", "BEARER  "] {
        let text = format!(
            "GET /v1/config HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Authorization: {scheme} {TOKEN}\r\n\r\n"
        );
        assert_eq!(exchange(address, text.as_bytes()).status, 200, "{scheme}");
    }
    for bad in [
        "",
        "short",
        "with blanks in between",
        &"x".repeat(257),
        "ümlauts-are-no-ascii",
    ] {
        assert!(Token::new(bad).is_err(), "{bad}");
    }
    assert_eq!(format!("{:?}", Token::new(TOKEN).unwrap()), "Token");
}

/// Changes that waited for one another once took every thread, and nobody could look meanwhile.
#[test]
fn neither_a_slow_client_nor_changes_that_wait_hold_up_others() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let address = server.address().unwrap().clone();
    let device =
        |name: &str| format!(r#"{{"name":"{name}","device":{{"type":"null","size":"1M"}}}}"#);
    let ApiAddress::Loopback(tcp) = address else {
        panic!("a loopback address was asked for");
    };
    // Half a body, and then nothing.
    let mut slow = TcpStream::connect(tcp).unwrap();
    let head = format!(
        "POST /v1/devices HTTP/1.1\r\nHost: {tcp}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).unwrap();
    assert_eq!(
        send(&server, "POST", "/v1/devices", &device("one")).status,
        201
    );

    let (go, gate) = std::sync::mpsc::channel::<()>();
    plane.refuse(move |_| gate.recv().is_err());
    std::thread::scope(|scope| {
        let changes: Vec<_> = (0..8)
            .map(|number| {
                let (server, body) = (&server, device(&format!("waits{number}")));
                scope.spawn(move || send(server, "POST", "/v1/devices", &body).status)
            })
            .collect();
        // Reads that wait for changes take no thread either.
        let waits: Vec<_> = (0..8)
            .map(|_| {
                let server = &server;
                scope.spawn(move || get(server, "/v1/config/changes").status)
            })
            .collect();
        for path in ["/healthz", "/v1/stats", "/metrics", "/v1/config"] {
            assert_eq!(get(&server, path).status, 200, "{path}");
        }
        for _ in 0..changes.len() {
            go.send(()).unwrap();
        }
        for change in changes {
            assert_eq!(change.join().unwrap(), 201);
        }
        for wait in waits {
            assert_eq!(wait.join().unwrap(), 200);
        }
    });
    drop(slow);
}

/// The connection was closed after its idle time although the client waited for an answer: it
/// learned nothing of a change that was made, and one that waited for its turn was dropped.
#[test]
fn a_client_that_waits_for_its_answer_is_not_idle() {
    let (control, plane) = control(TOML);
    let options = ServerOptions {
        limits: times(2_000, 2_000),
        ..options("127.0.0.1:0")
    };
    let server = run(Arc::clone(&control), options, || {}).unwrap();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    plane.refuse(move |_| {
        begin.send(()).unwrap();
        gate.recv().is_err()
    });
    let ApiAddress::Loopback(address) = *server.address().unwrap() else {
        panic!("a loopback address was asked for");
    };
    let change = |name: &str| {
        let device = format!(r#"{{"name":"{name}","device":{{"type":"null","size":"1M"}}}}"#);
        let mut client = TcpStream::connect(address).unwrap();
        let text = format!(
            "POST /v1/devices HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{device}",
            device.len()
        );
        client.write_all(text.as_bytes()).unwrap();
        client
    };
    let first = change("first");
    begun.recv().unwrap();
    let second = change("second");
    // Nothing is asked over this one, and the server takes it after those: when it is closed, as
    // long has passed for the others.
    let mut idle = TcpStream::connect(address).unwrap();
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    go.send(()).unwrap();
    go.send(()).unwrap();
    for mut client in [first, second] {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
}

/// Returns how often a limit of clients held one back, as the metrics say.
fn held_back(server: &Server, limit: &str) -> u64 {
    let metrics = get(server, "/metrics");
    let counter = format!("switchyard_limited_total{{limit=\"{limit}\"}} ");
    let count = metrics.body.lines().find_map(|l| l.strip_prefix(&counter));
    count.expect(limit).parse().unwrap()
}

/// Connects to the port of a server.
fn dial(server: &Server) -> TcpStream {
    let ApiAddress::Loopback(address) = *server.address().unwrap() else {
        panic!("a loopback address was asked for");
    };
    TcpStream::connect(address).unwrap()
}

/// A connection of a client that has had an answer, and keeps its place.
fn held(server: &Server) -> TcpStream {
    let mut client = dial(server);
    ask(&mut client);
    client
}

/// Asks for the state of the server, over a connection that stays.
fn ask(client: &mut TcpStream) {
    let text = format!(
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    client.write_all(text.as_bytes()).unwrap();
    take_answer(client);
}

/// Takes a whole answer.
fn take_answer(client: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let (_, length) = head.split_once("content-length: ").unwrap();
    let length = length.lines().next().unwrap().parse().unwrap();
    client.read_exact(&mut vec![0; length]).unwrap();
}

/// Each of the held ones may have an answer meanwhile, which takes the server past its look at one
/// more connection: it is not served for all that, before one of them goes.
#[test]
fn connections_beyond_the_limit_wait_for_room() {
    let (control, _plane) = control(TOML);
    let limits = ApiLimits {
        connections: 3,
        ..times(3_600_000, 3_600_000)
    };
    let options = ServerOptions {
        limits,
        ..options("127.0.0.1:0")
    };
    let server = run(control, options, || {}).unwrap();
    let mut all: Vec<_> = (0..3).map(|_| held(&server)).collect();
    let mut waiting = dial(&server);
    let text = format!(
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    waiting.write_all(text.as_bytes()).unwrap();
    waiting.set_nonblocking(true).unwrap();
    for _ in 0..100 {
        ask(&mut all[0]);
        let early = waiting.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(early, Err(ErrorKind::WouldBlock), "there is no room");
    }
    drop(all.remove(0));
    waiting.set_nonblocking(false).unwrap();
    take_answer(&mut waiting);
}

#[test]
fn a_body_that_does_not_come_is_waited_for_as_long_as_the_limit_says() {
    let (control, _plane) = control(TOML);
    let limits = ApiLimits {
        body_timeout_ms: 100,
        ..ApiLimits::default()
    };
    let options = ServerOptions {
        limits,
        ..options("127.0.0.1:0")
    };
    let server = run(control, options, || {}).unwrap();
    // The first byte alone.
    let begin = |length: usize| {
        let request = format!(
            "POST /v1/devices HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Connection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{{"
        );
        exchange(server.address().unwrap(), request.as_bytes())
    };
    let refused = begin(1000);
    refused.error(408);
    assert!(refused.body.contains("within 100ms"), "{refused:?}");
    assert_eq!(held_back(&server, "api_body_timeout_ms"), 1);
    // Its length says enough: it is not waited for. All of it would be cut off on its way.
    begin((1 << 20) + 1).error(413);
    assert_eq!(held_back(&server, "api_body_bytes"), 1);
    assert_eq!(held_back(&server, "api_body_timeout_ms"), 1);
}

/// Any user of the machine could hold all places, and the owner had no answer over TCP.
#[test]
fn strangers_hold_no_place() {
    const CONNECTIONS: usize = 64;
    let (control, _plane) = control(TOML);
    let patient = ServerOptions {
        limits: times(3_600_000, 3_600_000),
        ..options("127.0.0.1:0")
    };
    let server = run(control, patient, || {}).unwrap();
    let mut silent: Vec<_> = (0..CONNECTIONS).map(|_| dial(&server)).collect();
    assert_eq!(get(&server, "/v1/config").status, 200);
    // The oldest one has made room, whether it hears of that by an end or by a reset.
    assert!(matches!(silent[0].read(&mut [0]), Ok(0) | Err(_)));
    // A request is no claim without the token.
    for _ in 0..2 * CONNECTIONS {
        let mut stranger = dial(&server);
        let text = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stranger.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stranger.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        silent.push(stranger);
    }
    assert_eq!(get(&server, "/v1/config").status, 200);
    assert!(held_back(&server, "api_connections") > 0);
}

/// Each byte gave its client two minutes more.
#[test]
fn a_head_that_comes_byte_by_byte_ends_its_connection() {
    let (control, _plane) = control(TOML);
    let hasty = ServerOptions {
        limits: times(5_000, 3_600_000),
        ..options("127.0.0.1:0")
    };
    let server = run(control, hasty, || {}).unwrap();
    let mut slow = dial(&server);
    let pause = Duration::from_millis(50);
    slow.set_read_timeout(Some(pause)).unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        .unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < patience, "it is still open");
        let sent = slow.write_all(b"x");
        match slow.read(&mut [0]) {
            Err(error) if sent.is_ok() && error.kind() == ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => break,
            Ok(_) => panic!("there was no request"),
        }
    }
    assert_eq!(held_back(&server, "api_request_timeout_ms"), 1);
    assert_eq!(held_back(&server, "api_idle_timeout_ms"), 0);
}

#[test]
fn a_client_that_asks_nothing_more_is_closed_and_counted() {
    let (control, _plane) = control(TOML);
    let options = ServerOptions {
        limits: times(3_600_000, 100),
        ..options("127.0.0.1:0")
    };
    let server = run(control, options, || {}).unwrap();
    let mut idle = held(&server);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    assert_eq!(held_back(&server, "api_idle_timeout_ms"), 1);
    assert_eq!(held_back(&server, "api_request_timeout_ms"), 0);
}
