use super::fixtures::{after, between};
use super::*;
use serde_json::{Value, json};

fn values(earlier: Option<&Snapshot>, later: &Snapshot) -> Value {
    serde_json::to_value(between(earlier, later)).expect("a board is JSON")
}

#[test]
fn a_tenant_is_told_by_what_it_did_between_the_looks() {
    let board = values(Some(&after(1)), &after(3));
    let db = json!({
        "device": "slow", "tenant": "db", "class": "p95 500us",
        "reserved_tokens_per_second": 600, "iops": 100, "bytes_per_second": 389_120,
        "errors_per_second": 0, "spent_tokens_per_second": 230,
        "earned_tokens_per_second": 600, "given_tokens_per_second": 370,
        "taken_tokens_per_second": 1, "waiting": 7,
        "read_p50_ns": 100_000, "read_p95_ns": 500_000, "read_p99_ns": 2_000_000,
        "windows_met": 12, "windows_missed": 3, "overruns": "no",
    });
    assert_eq!(board["tenants"][2], db);
    assert_eq!(board["tenants"][1]["class"], "weight 20");
}

#[test]
fn a_device_is_the_sum_of_its_tenants_where_they_add_up() {
    let board = values(Some(&after(1)), &after(2));
    let all = &board["tenants"][0];
    assert_eq!(all["tenant"], "(all)");
    assert_eq!(all["class"], "1000 tokens/s");
    assert_eq!(all["reserved_tokens_per_second"], 600);
    assert_eq!(all["iops"], 400);
    assert_eq!(all["bytes_per_second"], 4 * 389_120);
    assert_eq!(all["waiting"], 14);
    assert_eq!(all["read_p95_ns"], Value::Null);
    assert_eq!(all["overruns"], Value::Null);
}

#[test]
fn a_device_without_tenants_has_nothing_to_add_up() {
    let mut alone = after(1);
    alone.devices[0].tenants.clear();
    let board = values(None, &alone);
    assert_eq!(board["tenants"][0]["reserved_tokens_per_second"], 600);
    assert_eq!(board["tenants"][0]["iops"], Value::Null);
}

#[test]
fn cores_tell_each_class() {
    let board = values(Some(&after(1)), &after(2));
    let cores = board["cores"].as_array().expect("rows");
    assert_eq!(cores.len(), 4);
    let throughput = json!({
        "core": 0, "class": "throughput", "core_busy_percent": 25, "queues": 2,
        "outstanding_bytes": 65_536, "load_bytes": 32_768,
        "receive_quanta_per_second": 110, "send_quanta_per_second": 130,
        "preemptions_per_second": 20, "answers_per_second": 1000,
        "caravans_per_second": 250, "sent_bytes_per_second": 40_960,
        "moved_in": 4, "moved_out": 5, "steering_steps": 6,
        "in_use": "yes", "scaled_in": 8, "scaled_out": 9,
    });
    assert_eq!(cores[1], throughput);
    assert_eq!(cores[2]["core"], 1);
    assert_eq!(cores[2]["core_busy_percent"], 25);
    assert_eq!(cores[2]["class"], "latency");
    assert_eq!(cores[2]["in_use"], "no");
}

#[test]
fn namespaces_and_queues_are_told() {
    let board = values(Some(&after(1)), &after(2));
    let namespace = &board["namespaces"][0];
    assert_eq!(namespace["subsystem"], "nqn.2026-11.com.example:disk");
    assert_eq!(namespace["reads_per_second"], 100);
    assert_eq!(namespace["written_bytes_per_second"], 819_200);
    assert_eq!(namespace["write_p99_ns"], 2_000_000);
    assert_eq!(namespace["errors_per_second"], 3);
    let queue = &board["queues"][1];
    assert_eq!((&queue["qid"], &queue["core"]), (&json!(2), &json!(1)));
    assert_eq!(
        (&queue["depth"], &queue["header_digest"]),
        (&json!(128), &json!("yes"))
    );
    assert_eq!(queue["identity"], "tls");
    assert_eq!(queue["host"], r"nqn.2026-11.com.example:db\u{1b}[2J");
}

#[test]
fn without_an_earlier_look_at_the_same_run_there_are_no_rates() {
    let restarted = Snapshot {
        uptime_ms: 5,
        ..after(2)
    };
    for board in [values(None, &after(2)), values(Some(&after(9)), &restarted)] {
        let db = &board["tenants"][2];
        assert_eq!(db["iops"], Value::Null);
        assert_eq!(db["read_p50_ns"], Value::Null);
        assert_eq!(db["waiting"], 7);
        assert_eq!(board["cores"][0]["core_busy_percent"], Value::Null);
        assert_eq!(board["namespaces"][0]["reads_per_second"], Value::Null);
    }
}

#[test]
fn a_tenant_that_came_between_the_looks_counts_from_nothing() {
    let mut earlier = after(1);
    earlier.devices[0]
        .tenants
        .retain(|tenant| tenant.name != "db");
    let board = values(Some(&earlier), &after(2));
    assert_eq!(board["tenants"][2]["iops"], 200);
    // One of an old name that counts less than the one before it is another.
    let mut later = after(2);
    later.devices[0].tenants[1].stats = Default::default();
    let board = values(Some(&after(1)), &later);
    assert_eq!(board["tenants"][2]["iops"], Value::Null);
}

#[test]
fn every_row_has_a_cell_for_every_column() {
    for earlier in [None, Some(&after(1))] {
        for table in between(earlier, &after(2)).tables {
            assert!(!table.rows.is_empty(), "{}", table.name);
            for row in &table.rows {
                assert_eq!(row.cells.len(), table.columns.len(), "{}", table.name);
            }
        }
    }
}

#[test]
fn plain_text_says_it_all_and_what_is_not_there() {
    let text = between(Some(&after(1)), &after(2)).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "up 1d 1:00:02, 0 connections, 1 controllers, 1/2 threads"
    );
    assert_eq!(lines[2], "TENANTS");
    let db = lines[6].split_whitespace().collect::<Vec<_>>().join(" ");
    let told = "slow db p95 500us 600 100 380K 0 230 600 370 1 7 100us 500us 2.0ms 12 3 no";
    assert_eq!(db, told);
    // Numbers end where the titles of their columns end.
    let end = |line: &str, word: &str| line.find(word).expect("is there") + word.len();
    assert_eq!(end(lines[3], "spent/s"), end(lines[6], " 230"));
    let nothing = between(None, &Snapshot::default()).to_string();
    assert!(nothing.contains("NAMESPACES\nno namespaces\n"));
}
