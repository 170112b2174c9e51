//! Hosts with keys.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use super::subsystems::name;
use crate::limits;
use crate::schema::Host;
use crate::spot::Spot;

pub(super) fn check(hosts: &[Host], place: &Spot<'_>) {
    place.at_most(hosts.len(), limits::HOSTS_MAX, "hosts");
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, host) in hosts.iter().enumerate() {
        let place = place.index(index);
        if let Some(first) = names.insert(&host.nqn, index) {
            place.key("nqn").report(
                format!("{:?} is the name of hosts[{first}] too", host.nqn),
                "name each host once",
            );
        }
        name(&host.nqn, &place.key("nqn"));
        place.at_most(host.files().count(), limits::HOST_KEY_FILES_MAX, "files");
        for (key, file) in host.files() {
            let mut parts = Path::new(file).components();
            let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            if file.is_empty() || !parts.all(is_plain) {
                place.key(key).report(
                    format!("{file:?} is no file of the folder `keys`"),
                    "write the name of a file there, like \"db.key\"",
                );
            }
        }
        if host.chap_controller_secret.is_some() && host.chap_secrets.is_empty() {
            place.key("chap_controller_secret").report(
                "proves the controller to a host that proves nothing itself",
                "name a file of the host's own secret in chap_secrets, or omit the key",
            );
        }
    }
}
