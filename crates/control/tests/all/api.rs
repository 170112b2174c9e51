//! The HTTP interface over real sockets.

// The whole file is a test program, and a panic is how a test fails.

use crate::common::{Scratch, TOKEN, TOML, control, exchange, get, request, send, serve};
use config::Action;
use switchyard_control::snapshot::{EventKind, TargetEvent};

const A: &str = "/v1/subsystems/nqn.2026-11.com.example:a";

/// Commands that ask one kind of process what only another one has left the user to guess that.
#[test]
fn an_unknown_path_says_what_process_it_is() {
    let (control, _plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let error = get(&server, "/v1/attachments").error(404);
    let expected = "there is nothing at /v1/attachments: this is a target; ";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn events_are_told_by_number_and_to_those_who_wait() {
    let event = |number| TargetEvent {
        number,
        unix_ms: 1_000,
        kind: EventKind::OverrunBegan(target::Overrun {
            tenant: "db".to_owned(),
            device: "fast".to_owned(),
            demand: target::Demand {
                window_ms: 1_000,
                reserved_milli: 100_000,
                asked_milli: 250_000,
                waiting: 9,
            },
        }),
    };
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let none = get(&server, "/v1/events").json();
    assert_eq!(
        (none["last"].as_u64(), &none["events"]),
        (Some(0), &serde_json::json!([]))
    );
    plane.events.lock().unwrap().extend([event(1), event(2)]);
    let all = get(&server, "/v1/events").json();
    assert_eq!(all["events"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&all["last"], &all["events"][0]["kind"]),
        (&2.into(), &"overrun_began".into())
    );
    assert_eq!(all["events"][1]["asked_tokens_per_second"], 250);
    // Somebody waits, and is told when it happens.
    let waiting = std::thread::scope(|scope| {
        let waits = scope.spawn(|| get(&server, "/v1/events?after=2&wait_ms=60000").json());
        plane.events.lock().unwrap().push(event(3));
        waits.join().unwrap()
    });
    assert_eq!(waiting["last"], 3);
    assert_eq!(waiting["events"].as_array().unwrap().len(), 1);
    let empty = get(&server, "/v1/events?after=3&wait_ms=1").json();
    assert_eq!(empty["last"], 3);
    assert!(
        get(&server, "/v1/events?since=3")
            .error(400)
            .contains("since=3")
    );
}

#[test]
fn a_namespace_is_added_resized_and_removed() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let namespaces = format!("{A}/namespaces");
    let two = format!("{A}/namespaces/2");
    let added = send(
        &server,
        "POST",
        &namespaces,
        r#"{"nsid": 2, "device": "spare"}"#,
    );
    assert_eq!((added.status, &added.json()["nsid"]), (201, &2.into()));
    let resized = send(&server, "PATCH", &two, r#"{"size": "512K"}"#);
    assert_eq!(
        (resized.status, &resized.json()["size"]),
        (200, &"512K".into())
    );
    assert_eq!(get(&server, &two).json()["size"], "512K");
    let whole = send(&server, "PATCH", &two, r#"{"size": null}"#);
    assert_eq!((whole.status, whole.json().get("size")), (200, None));
    assert_eq!(
        get(&server, &namespaces).json()["namespaces"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(request(&server, "DELETE", &two, "", "").status, 204);
    assert!(get(&server, &two).error(404).contains("has no namespace 2"));
    let names: Vec<_> = plane
        .applied
        .lock()
        .unwrap()
        .iter()
        .rev()
        .take(4)
        .rev()
        .cloned()
        .collect();
    assert!(
        matches!(
            names.as_slice(),
            [
                Action::AddNamespace { .. },
                Action::ResizeNamespace { size: Some(_), .. },
                Action::ResizeNamespace { size: None, .. },
                Action::RemoveNamespace { nsid: 2, .. }
            ]
        ),
        "{names:?}"
    );
    assert_eq!(*plane.model.lock().unwrap(), *control.configuration());
}

#[test]
fn devices_and_subsystems_come_and_go() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "[::1]:0");
    let device = r#"{"name": "new", "device": {"type": "null", "size": "1G"}}"#;
    assert_eq!(send(&server, "POST", "/v1/devices", device).status, 201);
    assert!(
        send(&server, "POST", "/v1/devices", device)
            .error(409)
            .contains("already")
    );
    // A slash in a name travels percent-encoded.
    let subsystem = r#"{"nqn": "nqn.2026-11.com.example:b/c", "allow_any_host": true,
        "namespaces": [{"nsid": 1, "device": "new"}]}"#;
    assert_eq!(
        send(&server, "POST", "/v1/subsystems", subsystem).status,
        201
    );
    let b = "/v1/subsystems/nqn.2026-11.com.example:b%2Fc";
    assert_eq!(get(&server, b).json()["model"], "Switchyard");
    assert_eq!(
        get(&server, "/v1/devices/new").json()["used_by"][0]["nsid"],
        1
    );
    let used = request(&server, "DELETE", "/v1/devices/new", "", "").error(409);
    assert!(used.contains("is used by namespace 1"), "{used}");

    assert_eq!(request(&server, "DELETE", b, "", "").status, 204);
    assert_eq!(
        request(&server, "DELETE", "/v1/devices/new", "", "").status,
        204
    );
    assert_eq!(
        get(&server, "/v1/subsystems").json()["subsystems"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        get(&server, "/v1/devices").json()["devices"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(*plane.model.lock().unwrap(), *control.configuration());
}

#[test]
fn hosts_are_allowed_and_denied() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let host = r#"{"host": "nqn.2026-11.com.example:h"}"#;
    let hosts = format!("{A}/hosts");
    assert_eq!(send(&server, "POST", &hosts, host).status, 201);
    assert!(
        send(&server, "POST", &hosts, host)
            .error(409)
            .contains("allowed already")
    );
    assert!(
        send(&server, "POST", &hosts, r#"{"host": "nqn.me"}"#)
            .error(422)
            .contains("nqn.")
    );
    assert_eq!(
        send(&server, "PATCH", &hosts, r#"{"allow_any_host": true}"#).status,
        200
    );
    let list = get(&server, &hosts).json();
    assert_eq!(list["allow_any_host"], true);
    assert_eq!(list["allowed_hosts"][0], "nqn.2026-11.com.example:h");
    let one = format!("{hosts}/nqn.2026-11.com.example:h");
    assert_eq!(request(&server, "DELETE", &one, "", "").status, 204);
    request(&server, "DELETE", &one, "", "").error(404);
    assert_eq!(*plane.model.lock().unwrap(), *control.configuration());
}

#[test]
fn referrals_come_and_go() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let referral = r#"{"address": "192.0.2.9"}"#;
    assert_eq!(send(&server, "POST", "/v1/referrals", referral).status, 201);
    assert_eq!(
        get(&server, "/v1/referrals").json()["referrals"][0]["port"],
        8009
    );
    assert_eq!(
        send(&server, "DELETE", "/v1/referrals", referral).status,
        204
    );
    send(&server, "DELETE", "/v1/referrals", referral).error(404);
    assert_eq!(*plane.model.lock().unwrap(), *control.configuration());
}

/// What the answer advised was refused, or was no path.
#[test]
fn advice_names_a_path_that_there_is() {
    let (control, _plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let namespaces = format!("{A}/namespaces");
    let taken = send(
        &server,
        "POST",
        &namespaces,
        r#"{"nsid": 1, "device": "spare"}"#,
    );
    let absent = get(&server, &format!("{namespaces}/99"));
    for answer in [taken, absent] {
        let answer = answer.json();
        let advice = answer["what_to_do"].as_str().unwrap();
        assert!(advice.ends_with(&format!("GET {namespaces}")), "{advice}");
    }
}

#[test]
fn a_bad_change_is_refused_whole_and_named() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let before = control.configuration();
    let applied = plane.applied.lock().unwrap().len();
    let namespaces = format!("{A}/namespaces");
    for (body, status, expected) in [
        (
            r#"{"nsid": 1, "device": "spare"}"#,
            409,
            "has a namespace 1 already",
        ),
        (
            r#"{"nsid": 2, "device": "spar"}"#,
            422,
            "did you mean \"spare\"?",
        ),
        (
            r#"{"nsid": 2, "device": "fast"}"#,
            422,
            "is used by subsystems[0].namespaces[0]",
        ),
        (r#"{"nsid": 2, "devise": "fast"}"#, 422, "things are wrong"),
        (
            r#"{"nsid": "2", "device": "spare"}"#,
            422,
            "nsid: the text \"2\" cannot stand here",
        ),
        (r#"{"nsid": 2"#, 422, "this is not JSON"),
        ("[]", 422, "an array cannot stand here"),
    ] {
        let error = send(&server, "POST", &namespaces, body).error(status);
        assert!(error.contains(expected), "{body}: {error}");
    }
    let problems = send(
        &server,
        "POST",
        &namespaces,
        r#"{"nsid": 2, "devise": "fast"}"#,
    )
    .json();
    assert_eq!(
        problems["problems"][1]["what_to_do"],
        "did you mean \"device\"?"
    );
    let nowhere = "/v1/subsystems/nqn.2026-11.com.example:z/namespaces";
    send(
        &server,
        "POST",
        nowhere,
        r#"{"nsid": 2, "device": "spare"}"#,
    )
    .error(404);
    send(&server, "PATCH", &format!("{A}/namespaces/1"), "{}").error(422);
    send(
        &server,
        "PATCH",
        &format!("{A}/namespaces/one"),
        r#"{"size": 1}"#,
    )
    .error(400);
    get(&server, "/v1/devices/%FF").error(400);
    get(&server, "/v2").error(404);
    let method = request(&server, "PUT", "/v1/devices", "", "");
    method.error(405);
    assert!(method.head.contains("allow: "), "{method:?}");
    let form = "Content-Type: text/plain\r\n";
    request(&server, "POST", "/v1/devices", form, "{}").error(415);
    request(&server, "POST", "/v1/devices", "", "{}").error(415);
    assert_eq!(control.configuration(), before);
    assert_eq!(plane.applied.lock().unwrap().len(), applied);
}

#[test]
fn a_body_without_end_is_refused() {
    let (control, _plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let address = server.address().unwrap();
    // Nothing of it is sent: the announced length is enough to refuse it.
    let request = format!(
        "POST /v1/config HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: 1048577\r\n\r\n"
    );
    let error = exchange(address, request.as_bytes()).error(413);
    assert!(error.contains("send at most 1048576 bytes"), "{error}");
}

#[test]
fn a_whole_configuration_is_compared_tried_and_applied() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let toml = "Content-Type: application/toml\r\n";
    let accept = "Accept: application/toml\r\n";
    let shown = request(&server, "GET", "/v1/config", accept, "");
    assert!(shown.head.contains("content-type: application/toml"));
    let changed = shown.body.replace("\"fast\"", "\"spare\"");
    let dry = request(&server, "POST", "/v1/config?dry_run=true", toml, &changed).json();
    assert_eq!(dry["actions"].as_array().unwrap().len(), 2, "{dry}");
    assert_eq!(dry["dry_run"], true);
    assert_eq!(
        control.configuration().users_of("fast").count(),
        1,
        "nothing was done"
    );
    let done = request(&server, "POST", "/v1/config", toml, &changed).json();
    assert_eq!(done["actions"], dry["actions"]);
    assert_eq!(control.configuration().users_of("spare").count(), 1);
    assert_eq!(*plane.model.lock().unwrap(), *control.configuration());

    // As JSON, it is the same again: nothing to do.
    let json = get(&server, "/v1/config").body;
    let same = send(&server, "POST", "/v1/config", &json).json();
    assert_eq!(same["actions"].as_array().unwrap().len(), 0, "{same}");

    let fixed = changed.replace("data = true", "data = false");
    let error = request(&server, "POST", "/v1/config", toml, &fixed).error(409);
    assert!(
        error.starts_with("digests.data cannot be changed while running"),
        "{error}"
    );
    // The command prints each problem, and printed "digests: ;".
    let refused = request(&server, "POST", "/v1/config", toml, &fixed).json();
    let problem = &refused["problems"][0];
    assert_eq!(problem["key"], "digests.data");
    assert_eq!(problem["error"], "cannot be changed while running");
    let bad = request(&server, "POST", "/v1/config", toml, "\npol = 1");
    bad.error(422);
    assert_eq!(bad.json()["problems"][0]["line"], 2);
    send(&server, "POST", "/v1/config?dry=1", "{}").error(400);
}

#[test]
fn a_failure_on_the_way_is_undone() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let before = control.configuration();
    plane.refuse(|action| matches!(action, Action::AddSubsystem { .. }));
    let mut new = (*before).clone();
    let device = new.devices["spare"].clone();
    new.devices.insert("more".to_owned(), device);
    new.subsystems[0].namespaces.clear();
    new.subsystems
        .push(config::schema::Subsystem::new("nqn.2026-11.com.example:z"));
    let body = serde_json::to_string(&new).unwrap();
    let response = send(&server, "POST", "/v1/config", &body);
    let error = response.error(500);
    assert_eq!(error, "no space left on device; free some space");
    assert_eq!(response.json().get("in_force"), None);
    assert_eq!(control.configuration(), before);
    assert_eq!(*plane.model.lock().unwrap(), *before);
}

#[test]
fn what_cannot_be_undone_is_told_and_the_model_stays_true() {
    let (control, plane) = control(
        "[devices.a]\ntype = \"ram\"\nsize = \"1M\"\n[devices.b]\ntype = \"ram\"\nsize = \"1M\"",
    );
    let server = serve(&control, "127.0.0.1:0");
    plane.refuse(|action| matches!(action, Action::RemoveDevice { name } if name == "b"));
    let response = send(&server, "POST", "/v1/config", "{}");
    response.error(500);
    assert_eq!(response.json()["in_force"][0]["name"], "a");
    let names: Vec<String> = control.configuration().devices.keys().cloned().collect();
    assert_eq!(names, ["b"]);
    assert_eq!(*plane.model.lock().unwrap(), *control.configuration());
}

#[test]
fn a_broken_file_leaves_the_old_configuration_in_force() {
    let scratch = Scratch::new("broken");
    let path = scratch.0.join("switchyard.toml");
    let (control, plane) = control(TOML);
    let before = control.configuration();
    for (text, expected) in [
        (
            "[devices.c]\ntype = \"nul\"",
            ":2: devices.c.type: the text \"nul\" cannot stand here; did you mean \"null\"?",
        ),
        (
            "cores = [3]",
            "cores: cannot be changed while running; restart",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = control.replace_from_file(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    let error = control.replace_from_file(&path).unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
    assert_eq!(control.configuration(), before);
    assert_eq!(*plane.model.lock().unwrap(), *before);
}

#[test]
fn a_process_that_ends_says_so_while_it_finishes() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    control.set_draining();
    let health = get(&server, "/healthz");
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["status"], "draining");
    assert_eq!(get(&server, "/v1/config").status, 200);
    // A change went to cores that had ended, and into the state file.
    let before = control.configuration();
    let device = r#"{"name":"late","device":{"type":"null","size":"1M"}}"#;
    let refused = send(&server, "POST", "/v1/devices", device).error(503);
    assert!(refused.contains("the target is ending"), "{refused}");
    assert_eq!(control.configuration(), before);
    assert_eq!(*plane.model.lock().unwrap(), *before);
}

#[test]
fn statistics_and_metrics_tell_what_the_dataplane_knows() {
    let (control, _plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let health = get(&server, "/healthz");
    assert_eq!(health.status, 200);
    assert_eq!(health.json()["status"], "ok");
    assert_eq!(get(&server, "/v1/stats").json()["connections"]["open"], 5);
    assert_eq!(
        get(&server, "/v1/controllers").json()["controllers"][0]["cntlid"],
        1
    );
    for (accept, content_type, family, end) in [
        (
            "",
            "content-type: text/plain; version=0.0.4",
            "\n# TYPE switchyard_connections_accepted_total counter\n",
            "\n",
        ),
        (
            "Accept: application/openmetrics-text; version=1.0.0\r\n",
            "content-type: application/openmetrics-text; version=1.0.0",
            "\n# TYPE switchyard_connections_accepted counter\n",
            "\n# EOF\n",
        ),
    ] {
        let metrics = request(&server, "GET", "/metrics", accept, "");
        assert!(metrics.head.contains(content_type), "{}", metrics.head);
        let lines = ["\nswitchyard_connections 5\n", family];
        let has = lines.iter().all(|line| metrics.body.contains(line));
        assert!(has && metrics.body.ends_with(end), "{}", metrics.body);
    }
}

#[test]
fn knobs_are_seen_and_turned_while_it_runs() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let before = get(&server, "/v1/switch").json();
    assert_eq!(
        before["setting"],
        serde_json::json!({ "baseline": "switchyard" })
    );
    assert_eq!(before["knobs"]["doorbell"], "adaptive");
    let patch = |body: &str| send(&server, "PATCH", "/v1/switch", body);

    let turned = patch(r#"{"baseline": "linux", "prioritisation": true, "doorbell_delay_us": 75}"#);
    assert_eq!(turned.status, 200);
    let turned = turned.json();
    assert_eq!(turned["setting"]["baseline"], "linux");
    assert_eq!(turned["knobs"]["doorbell_delay_us"], 75);
    let shown = get(&server, "/v1/switch").json();
    assert_eq!(shown["knobs"], turned["knobs"]);
    assert_eq!(shown["cores"], serde_json::json!([]));
    assert_eq!(*plane.model.lock().unwrap(), *control.configuration());

    // The knobs that are not named stay where they are; nothing new is nothing to do.
    let turned = patch(r#"{"caravan": false, "quantum_bytes": null}"#).json();
    assert_eq!(
        (
            &turned["knobs"]["caravan"],
            &turned["knobs"]["prioritisation"]
        ),
        (&false.into(), &true.into())
    );
    assert_eq!(patch(r#"{"caravan": false}"#).json(), turned);
    let turns = |action: &&Action| matches!(action, Action::TurnKnobs { .. });
    assert_eq!(
        plane.applied.lock().unwrap().iter().filter(turns).count(),
        2
    );

    let error = patch(r#"{"doorbell": "loud", "caravan": 1}"#);
    assert_eq!(
        error.json()["problems"].as_array().unwrap().len(),
        2,
        "{}",
        error.body
    );
    error.error(422);
    let error = patch(r#"{"doorbell_max_hold_us": 10}"#).error(422);
    assert_eq!(
        error,
        "doorbell_max_hold_us has an effect only with doorbell=adaptive; set that too, or omit this"
    );
    plane.refuse(|action| matches!(action, Action::TurnKnobs { .. }));
    patch(r#"{"caravan": true}"#).error(500);
    let shown = get(&server, "/v1/switch").json();
    assert_eq!(shown["knobs"], turned["knobs"]);
}

/// The first of the two was ignored.
#[test]
fn a_key_that_is_there_twice_is_refused() {
    let (control, _) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let body = r#"{"nsid": 2, "device": "spare", "nsid": 3}"#;
    let error = send(&server, "POST", &format!("{A}/namespaces"), body).error(422);
    assert!(error.contains("\"nsid\" is there twice"), "{error}");
}

/// It was ignored, and the change was made.
#[test]
fn a_dry_run_where_there_is_none_is_refused() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let before = plane.applied.lock().unwrap().len();
    for (method, path, body) in [
        ("DELETE", "/v1/devices/spare".to_owned(), ""),
        (
            "POST",
            format!("{A}/hosts"),
            r#"{"host": "nqn.2026-11.com.example:h"}"#,
        ),
        (
            "PATCH",
            "/v1/tenants".to_owned(),
            r#"{"default_tenant": false}"#,
        ),
        ("POST", "/v1/config/file".to_owned(), "{}"),
    ] {
        let error = send(&server, method, &format!("{path}?dry_run=true"), body).error(400);
        let expected = format!("{method} {path} does not take the query \"dry_run=true\"");
        assert!(error.starts_with(&expected), "{error}");
    }
    assert_eq!(
        plane.applied.lock().unwrap().len(),
        before,
        "nothing was done"
    );
    // An unknown path stays one, and what only asks may say what it likes.
    send(&server, "POST", "/v1/nothing?dry_run=true", "{}").error(404);
    assert_eq!(get(&server, "/metrics?name=x").status, 200);
    assert_eq!(
        send(&server, "DELETE", "/v1/devices/spare?", "").status,
        204
    );
}

/// `caches` and two limits were on no page.
#[test]
fn the_operators_page_has_every_key_of_the_statistics() {
    let page = include_str!("../../../../docs/guide/operate.md");
    let snapshot = serde_json::to_value(switchyard_control::Snapshot::default()).unwrap();
    for key in snapshot.as_object().unwrap().keys() {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn a_device_is_calibrated_while_it_serves_and_one_at_a_time() {
    let (control, _) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let path = "/v1/devices/fast/calibration";
    get(&server, path).error(404);
    for (body, key) in [
        (r#"{"seconds": 5}"#, "share_percent"),
        (r#"{"share_percent": 0}"#, "share_percent"),
        (r#"{"share_percent": 101}"#, "share_percent"),
        (r#"{"share_percent": 10, "seconds": 3601}"#, "seconds"),
        (r#"{"share_percent": 10, "second": 5}"#, "second"),
    ] {
        let error = send(&server, "POST", path, body).error(422);
        assert!(error.contains(key), "{body}: {error:?}");
    }
    let begun = send(&server, "POST", path, r#"{"share_percent": 10}"#);
    assert_eq!(begun.status, 202, "{begun:?}");
    assert_eq!(begun.json()["seconds"], 30);
    assert_eq!(begun.json()["state"], "running");
    send(&server, "POST", path, r#"{"share_percent": 10}"#).error(409);
    get(&server, "/v1/devices/spare/calibration").error(404);
    assert_eq!(request(&server, "DELETE", path, "", "").status, 204);
    assert_eq!(get(&server, path).json()["state"], "cancelled");
    assert_eq!(
        send(
            &server,
            "POST",
            path,
            r#"{"share_percent": 1, "seconds": 1}"#
        )
        .status,
        202
    );
}

/// Whoever could use the interface could have any file of the target's user served.
#[test]
fn devices_over_the_interface_have_their_files_below_configured_folders() {
    let scratch = Scratch::new("folders");
    let (folder, outside) = (scratch.0.join("in"), scratch.0.join("out"));
    for path in [&folder, &outside, &folder.join("sub")] {
        std::fs::create_dir(path).unwrap();
    }
    let link = |to: &std::path::Path, name: &str| {
        std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
    };
    std::fs::write(folder.join("disk"), [0; 4096]).unwrap();
    std::fs::write(outside.join("secret"), [0; 4096]).unwrap();
    link("disk".as_ref(), "alias");
    link(&outside, "way");
    link(&outside.join("secret"), "secret");
    link(&outside.join("nothing"), "dangling");
    link("../out/secret".as_ref(), "relative");
    let toml = format!("device_folders = [{folder:?}]\n{TOML}");
    for (toml, path, create, expected) in [
        (toml.as_str(), folder.join("disk"), false, 201),
        (&toml, folder.join("alias"), false, 201),
        (&toml, folder.join("new"), true, 201),
        (&toml, folder.join("sub/new"), true, 201),
        (&toml, folder.join("way/secret"), false, 422),
        (&toml, folder.join("way/new"), true, 422),
        (&toml, folder.join("secret"), false, 422),
        (&toml, folder.join("relative"), false, 422),
        (&toml, folder.join("dangling"), true, 422),
        (&toml, folder.join("../out/secret"), false, 422),
        (&toml, folder.join("missing"), false, 422),
        (&toml, outside.join("secret"), false, 422),
        (&toml, "disk".into(), false, 422),
        (TOML, folder.join("disk"), false, 422),
    ] {
        let (control, _plane) = control(toml);
        let server = serve(&control, "127.0.0.1:0");
        let size = if create { ",\"size\":\"1M\"" } else { "" };
        let body = format!(
            r#"{{"name":"x","device":{{"type":"file","path":{path:?},"create":{create}{size}}}}}"#
        );
        let answer = send(&server, "POST", "/v1/devices", &body);
        assert_eq!(answer.status, expected, "{path:?}: {answer:?}");
        // By way of its model, and as a part of a whole configuration.
        if !create && expected == 422 {
            let body = format!(
                r#"{{"name":"x","device":{{"type":"null","size":"1M","model":{path:?}}}}}"#
            );
            send(&server, "POST", "/v1/devices", &body).error(422);
            let whole = format!("{toml}[devices.x]\ntype = \"file\"\npath = {path:?}\n");
            let kind = "Content-Type: application/toml\r\n";
            request(&server, "POST", "/v1/config", kind, &whole).error(422);
            // A dry run says so, too.
            let dry = "/v1/config?dry_run=true";
            request(&server, "POST", dry, kind, &whole).error(422);
        }
    }
}

#[test]
fn a_trace_of_what_there_is_not_is_refused() {
    let (control, _) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    for (query, status, expected) in [
        ("nsid=1", 400, "nqn is missing; write ?nqn=NQN&nsid=N"),
        ("tenant=none", 404, "there is no tenant \"none\""),
        (
            "nqn=nqn.2026-11.com.example:none",
            404,
            "nqn.2026-11.com.example:none",
        ),
        (
            "opcode=format",
            400,
            "there is no command \"format\"; name one of flush, write, read",
        ),
        ("slower_than_ns=-1", 400, "write ?tenant=NAME"),
        ("slower_than_ns=", 400, "write ?tenant=NAME"),
        ("sample=0", 400, "write ?tenant=NAME"),
        ("slower_than_us=5", 400, "write ?tenant=NAME"),
        // The plane of this test has no cores.
        ("tenant=default", 500, "this process has no I/O commands"),
    ] {
        let error = get(&server, &format!("/v1/trace?{query}")).error(status);
        assert!(error.contains(expected), "{query}: {error}");
    }
}
