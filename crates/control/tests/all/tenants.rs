//! Tenants by the HTTP interface over real sockets.

// The whole file is a test program, and a panic is how a test fails.

use crate::common;
use crate::common::{TOML, control, get, request, send, serve};
use config::Action;

#[test]
fn a_tenant_that_somebody_else_changed_is_not_overwritten() {
    let (control, _) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let body = |weight: u32| {
        format!(
            r#"{{"name": "job", "hosts": ["nqn.2026-11.com.example:job"],
                "best_effort": {{"weight": {weight}}}}}"#
        )
    };
    let tag = |response: &common::Response| {
        let tag = response
            .head
            .lines()
            .find_map(|line| line.strip_prefix("etag: "));
        tag.unwrap_or_else(|| panic!("no tag: {response:?}"))
            .trim()
            .to_owned()
    };
    let put = |if_match: &str, weight: u32| {
        let headers = format!("Content-Type: application/json\r\nIf-Match: {if_match}\r\n");
        request(&server, "PUT", "/v1/tenants/job", &headers, &body(weight))
    };
    put("*", 1).error(412);
    let added = tag(&send(&server, "POST", "/v1/tenants", &body(100)));
    let seen = tag(&get(&server, "/v1/tenants/job"));
    assert_eq!(seen, added);
    let changed = put(&format!("\"another\", {seen}"), 200);
    assert_eq!(changed.json()["tenant"]["best_effort"]["weight"], 200);
    assert_ne!(tag(&changed), seen);
    let error = put(&seen, 300).error(412);
    assert!(error.contains("read it again"), "{error}");
    let now = get(&server, "/v1/tenants/job").json();
    assert_eq!(now["tenant"]["best_effort"]["weight"], 200);
    assert_eq!(put("*", 400).status, 200);
    // Whoever does not say what it has seen has the last word.
    assert_eq!(
        send(&server, "PUT", "/v1/tenants/job", &body(500)).status,
        200
    );
    // It once removed what had changed meanwhile.
    let delete = |tag: &str| {
        let headers = format!("If-Match: {tag}\r\n");
        request(&server, "DELETE", "/v1/tenants/job", &headers, "")
    };
    delete(&seen).error(412);
    let seen = tag(&get(&server, "/v1/tenants/job"));
    assert_eq!(delete(&seen).status, 204);
    delete("*").error(412);
}

#[test]
fn tenants_are_added_changed_and_removed_one_by_one() {
    let (control, plane) = control(TOML);
    let server = serve(&control, "127.0.0.1:0");
    let list = || get(&server, "/v1/tenants").json()["tenants"].clone();
    assert_eq!(list()[0]["tenant"]["name"], "default", "nobody else");
    let db = |iops: u64| {
        format!(
            r#"{{"name": "db", "hosts": ["nqn.2026-11.com.example:db"],
                "latency_critical": {{"latency_us": 500, "iops": {iops}, "read_percent": 80}}}}"#
        )
    };
    let added = send(&server, "POST", "/v1/tenants", &db(1000));
    assert_eq!(added.status, 201, "{added:?}");
    assert_eq!(added.json()["devices"][0]["served"]["waiting"], 7);
    let again = send(&server, "POST", "/v1/tenants", &db(1000));
    let absent = get(&server, "/v1/tenants/absent").json();
    // The command shows the same text.
    for (answer, command) in [(again.json(), "tenant set"), (absent, "tenant list")] {
        let advice = answer["what_to_do"].as_str().unwrap();
        assert!(
            advice.contains(&format!("`switchyard {command}`")),
            "{advice}"
        );
    }
    let again = again.error(409);
    assert!(again.contains("already"), "{again}");
    let changed = send(&server, "PUT", "/v1/tenants/db", &db(2000)).json();
    assert_eq!(changed["tenant"]["latency_critical"]["iops"], 2000);
    // The same again is nothing to do.
    send(&server, "PUT", "/v1/tenants/db", &db(2000));
    let sets = |action: &&Action| matches!(action, Action::SetTenants { .. });
    assert_eq!(plane.applied.lock().unwrap().iter().filter(sets).count(), 2);
    let error = send(&server, "PUT", "/v1/tenants/other", &db(1)).error(400);
    assert!(error.contains("name the same"), "{error}");
    // Two that are the same host contradict each other.
    let twin = db(1).replace("\"db\"", "\"twin\"");
    send(&server, "POST", "/v1/tenants", &twin).error(422);
    plane.refuse(|action| matches!(action, Action::SetTenants { .. }));
    send(&server, "PUT", "/v1/tenants/db", &db(9)).error(500);
    assert_eq!(list()[0]["tenant"]["latency_critical"]["iops"], 2000);
    plane.refuse(|_| false);
    let gone = request(&server, "DELETE", "/v1/tenants/db", "", "");
    assert_eq!(gone.status, 204);
    request(&server, "DELETE", "/v1/tenants/db", "", "").error(404);
    get(&server, "/v1/tenants/db").error(404);
    // Whoever is no tenant is served, or not.
    let others = |text: &str| send(&server, "PATCH", "/v1/tenants", text);
    let refused = others(r#"{"default_tenant": false}"#).json();
    assert_eq!(refused["default_tenant"], false);
    let nobody = get(&server, "/v1/tenants").json();
    assert_eq!(nobody["default_tenant"], false);
    assert_eq!(nobody["tenants"], serde_json::json!([]));
    let error = others("{}").error(422);
    assert!(error.contains("default_tenant"), "{error}");
    assert!(!control.configuration().default_tenant);
    assert_eq!(*plane.model.lock().unwrap(), *control.configuration());
}
