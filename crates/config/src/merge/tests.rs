//! Who changed what, and who wins: nobody, silently.

use super::*;
use crate::{Format, parse};

const BASE: &str = r#"
listen = ["127.0.0.1:4420"]
switch = { doorbell = "fixed" }
[devices.a]
type = "null"
size = "1M"
[devices.b]
type = "null"
size = "2M"
[[subsystems]]
nqn = "nqn.2026-11.com.example:a"
allowed_hosts = ["nqn.2026-11.com.example:one"]
namespaces = [{ nsid = 1, device = "a" }, { nsid = 11, device = "b" }]
[[tenants]]
name = "t"
hosts = ["nqn.2026-11.com.example:one"]
"#;

fn read(text: &str) -> Configuration {
    parse(text, Format::Toml).expect(text)
}

/// The base with one text of it replaced.
fn with(from: &str, to: &str) -> Configuration {
    assert!(BASE.contains(from), "{from}");
    read(&BASE.replace(from, to))
}

fn merged(in_force: &Configuration, file: &Configuration) -> Result<Configuration, Vec<String>> {
    merge(&read(BASE), in_force, file).map_err(|contradiction| contradiction.keys)
}

const ONE_HOST: &str = r#"allowed_hosts = ["nqn.2026-11.com.example:one"]"#;
const TWO_HOSTS: &str =
    r#"allowed_hosts = ["nqn.2026-11.com.example:one", "nqn.2026-11.com.example:two"]"#;
const NO_HOST: &str = "allowed_hosts = []";

#[test]
fn what_only_one_side_changed_is_as_that_side_says() {
    let base = read(BASE);
    for changed in [
        with(ONE_HOST, TWO_HOSTS),
        with(ONE_HOST, NO_HOST),
        with("size = \"1M\"", "size = \"3M\""),
        with(", { nsid = 11, device = \"b\" }", ""),
        with("doorbell = \"fixed\"", "doorbell = \"immediate\""),
        with("[[tenants]]\nname = \"t\"", "[[tenants]]\nname = \"u\""),
    ] {
        assert_eq!(merged(&changed, &base), Ok(changed.clone()));
        assert_eq!(merged(&base, &changed), Ok(changed.clone()));
        assert_eq!(merged(&changed, &changed), Ok(changed.clone()));
        assert!(!differences(&base, &changed).is_empty());
    }
    assert_eq!(differences(&base, &base), []);
}

/// Nothing differed where the target runs with other limits than the file says.
#[test]
fn what_needs_a_restart_differs_as_well() {
    let changed = read(&format!(
        "api = \"unix:/a\"\napi_socket_mode = \"0660\"\nlimits.max_r2t = 3\ndefault_tenant = false\n{BASE}"
    ));
    let found = differences(&read(BASE), &changed);
    let found: Vec<_> = found
        .iter()
        .map(|it| (&*it.key, it.needs_restart()))
        .collect();
    assert_eq!(
        found,
        [
            ("api", true),
            ("api_socket_mode", true),
            ("default_tenant", false),
            ("limits.max_r2t", true)
        ]
    );
}

#[test]
fn changes_of_both_sides_are_kept_together() {
    let mut in_force = with(ONE_HOST, TWO_HOSTS);
    in_force.subsystems[0].namespaces[0].read_only = true;
    let mut file = with(ONE_HOST, NO_HOST);
    file.subsystems[0].namespaces.remove(1);
    file.devices.remove("b");
    // What cannot change while a target runs is the file's alone.
    file.cores = Some(vec![9]);
    let both = merged(&in_force, &file).expect("different things");
    let subsystem = &both.subsystems[0];
    let hosts: Vec<&str> = subsystem.allowed_hosts.iter().map(String::as_str).collect();
    assert_eq!(hosts, ["nqn.2026-11.com.example:two"]);
    assert_eq!(subsystem.namespaces.len(), 1);
    assert!(subsystem.namespaces[0].read_only);
    assert_eq!(both.cores, file.cores);
    assert_eq!(both.devices.len(), 1);
}

#[test]
fn what_both_sides_changed_differently_is_named_and_not_decided() {
    let namespace = "{ nsid = 1, device = \"a\" }";
    let sized = "{ nsid = 1, device = \"a\", size = \"4K\" }";
    let other = "{ nsid = 1, device = \"a\", size = \"8K\" }";
    let place = "subsystems.\"nqn.2026-11.com.example:a\".namespaces.1";
    let contradiction = merged(&with(namespace, sized), &with(namespace, other));
    assert_eq!(contradiction, Err(vec![place.to_owned()]));

    let knob = |to| with("doorbell = \"fixed\"", &format!("doorbell = \"{to}\""));
    let contradiction = merged(&knob("immediate"), &knob("adaptive"));
    assert_eq!(contradiction, Err(vec!["switch".to_owned()]));

    // One side removed what the other changed.
    let mut gone = read(BASE);
    gone.subsystems.clear();
    let contradiction = merged(&gone, &with(ONE_HOST, TWO_HOSTS));
    let place = "subsystems.\"nqn.2026-11.com.example:a\"";
    assert_eq!(contradiction, Err(vec![place.to_owned()]));
}

/// Its tables were taken for tables of leaves, and changes of different namespaces for one.
#[test]
fn a_subsystem_may_have_the_name_of_a_table() {
    for name in ["namespaces", "devices", "tenants", "subsystems"] {
        let base = BASE.replace("nqn.2026-11.com.example:a", name);
        let one = base.replace(ONE_HOST, TWO_HOSTS);
        let other = base.replace(", { nsid = 11, device = \"b\" }", "");
        let both = one.replace(", { nsid = 11, device = \"b\" }", "");
        assert_eq!(
            merge(&read(&base), &read(&one), &read(&other)),
            Ok(read(&both)),
            "{name}"
        );
        let nsid = base.replace("nsid = 1,", "nsid = 2,");
        let both = nsid.replace(", { nsid = 11, device = \"b\" }", "");
        assert_eq!(
            merge(&read(&base), &read(&nsid), &read(&other)),
            Ok(read(&both)),
            "{name}"
        );
    }
}

#[test]
fn listeners_of_both_sides_are_kept_together() {
    let listen = |list: &str| read(&BASE.replace("[\"127.0.0.1:4420\"]", list));
    let in_force = listen(r#"["[::1]:4420 tls=required", "127.0.0.1:4420"]"#);
    let file = listen(r#"["127.0.0.1:9"]"#);
    let both = merged(&in_force, &file).expect("different listeners");
    let both: Vec<_> = both.listen.iter().map(ToString::to_string).collect();
    assert_eq!(both, ["127.0.0.1:9", "[::1]:4420 tls=required"]);
}

/// One of the two would be gone from the state file.
#[test]
#[should_panic(expected = "each name is there once")]
fn a_name_that_is_there_twice_is_not_merged() {
    let mut file = read(BASE);
    file.tenants.push(file.tenants[0].clone());
    let _ = merged(&read(BASE), &file);
}

#[test]
fn differences_are_among_others_by_whole_keys() {
    let of = |key: &str| Difference {
        key: key.to_owned(),
        before: None,
        after: None,
    };
    let among = |key, other| are_among(&[of(key)], &[of("x"), of(other)]);
    assert!(among("devices.a", "devices.a") && among("devices.a", "devices"));
    assert!(!among("devices.ab", "devices.a") && !among("devices", "devices.a"));
    assert!(are_among(&[], &[]));
}
