//! The file of `switchyard attach --config`.
//!
//! The keys of an attachment are the flags of its kind, which the command line declares; it reads
//! them as [`Kinds`].

use crate::ClassRule;
use config::schema::{ApiAddress, ApiFiles, ApiLimits, Schema as _, Size};
use config::{
    ConfigError, Format, FoundNode, FromNode, Spot, Table, Value, parse_part, read, read_waiting,
};
use nix::unistd::User;
use std::collections::BTreeSet;
use std::path::Path;

/// Attachments of one process: each has at least one thread and one ring.
const ATTACHMENTS_MAX: usize = 256;

/// Bytes of an attachment's name: it becomes a label of a metric, and a part of a URL.
const ATTACHMENT_NAME_BYTES_MAX: usize = 64;

/// Bytes of a process's name that the kernel keeps (`TASK_COMM_LEN` without its final zero).
const COMMAND_BYTES_MAX: usize = 15;

/// The kinds of attachments with their keys.
pub trait Kinds: Sized {
    /// The names of the kinds.
    const NAMES: &'static [&'static str];

    /// Reads the keys of the kind with this name.
    fn read(kind: &str, table: &Table<'_>) -> Option<Self>;

    /// Reports keys that contradict each other.
    fn check(&self, place: &Spot<'_>);

    /// Returns true if the front end knows the process of a request.
    fn knows_process(&self) -> bool;
}

/// An attachment of a file.
#[derive(Clone, Debug)]
pub struct Entry<K> {
    /// Its name, unique in the file.
    pub name: String,
    /// Its kind with the keys of that.
    pub kind: K,
    /// The rules that give requests a class, in order.
    pub class_rules: Vec<ClassRule>,
    /// All keys, by which a change of the file is found.
    pub value: Value,
}

/// The HTTP interface of a process of front ends. It is fixed while that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its address.
    pub address: Option<ApiAddress>,
    /// Its files, if it is on a port.
    pub files: ApiFiles,
    /// Limits of its clients.
    pub limits: ApiLimits,
}

/// The content of a file.
#[derive(Clone, Debug)]
pub struct Entries<K> {
    /// The HTTP interface.
    pub interface: Interface,
    /// The attachments, in order.
    pub attachments: Vec<Entry<K>>,
}

/// Reads and checks the TOML file at `path`. Only if it `waits` may another process write to a pipe
/// there.
///
/// # Errors
/// Every problem found, with file, line and key; or the reason why it cannot be read.
pub fn load<K: Kinds>(path: &Path, waits: bool) -> Result<Entries<K>, ConfigError> {
    let text = if waits {
        read_waiting(path)
    } else {
        read(path)
    }?;
    parse(&text).map_err(|error| error.in_file(path))
}

/// Reads and checks the text of a file.
///
/// # Errors
/// Every problem found, with line and key.
pub fn parse<K: Kinds>(text: &str) -> Result<Entries<K>, ConfigError> {
    parse_part(text, Format::Toml, |file: Entries<K>, root| {
        let limits = &file.interface.limits;
        limits.check_ranges(&root.key("api_limits"));
        let interface = &file.interface;
        interface.files.check(interface.address.as_ref(), root);
        let all = root.key("attachments");
        all.at_most(file.attachments.len(), ATTACHMENTS_MAX, "attachments");
        let mut names = BTreeSet::new();
        for (index, entry) in file.attachments.iter().enumerate() {
            let place = all.index(index);
            if !names.insert(&entry.name) {
                let error = format!("{:?} is the name of an earlier attachment", entry.name);
                place.key("name").report(error, "choose another name");
            }
            entry.check(&place);
        }
        Some(file)
    })
}

impl<K: Kinds> FromNode for Entries<K> {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let address = table.or("api", None);
        let files = table.flat("api_files");
        let limits = table.or_default("api_limits");
        let hint = "write each attachment as [[attachments]] with name and kind";
        let attachments = table.required("attachments", hint);
        table.finish();
        Some(Self {
            interface: Interface {
                address: address?,
                files: files?,
                limits: limits?,
            },
            attachments: attachments?,
        })
    }
}

impl<K: Kinds> FromNode for Entry<K> {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let name = table.required("name", "write its name, like name = \"vm1\"");
        let kind = table.one_of("kind", K::NAMES);
        let class_rules = table.or_default("class_rules");
        // Its other keys are those of its kind.
        let kind = K::read(kind?, &table);
        table.finish();
        Some(Self {
            name: name?,
            kind: kind?,
            class_rules: class_rules?,
            value: found.value.clone(),
        })
    }
}

impl<K: Kinds> Entry<K> {
    fn check(&self, place: &Spot<'_>) {
        check_name(&self.name, &place.key("name"));
        self.kind.check(place);
        for (index, rule) in self.class_rules.iter().enumerate() {
            let place = place.key("class_rules").index(index);
            for (key, is_there) in [
                ("cgroup", rule.cgroup.is_some()),
                ("command", rule.command.is_some()),
                ("user", rule.user.is_some()),
            ] {
                if is_there && !self.kind.knows_process() {
                    let error = "this kind does not know the process of a request";
                    let what_to_do = "use max_bytes or max_depth, or the kind \"fuse\"";
                    place.key(key).report(error, what_to_do);
                }
            }
        }
    }
}

/// Reports a name that could not be a part of a URL and a label of a metric.
fn check_name(name: &str, place: &Spot<'_>) {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    let long = name.is_empty() || name.len() > ATTACHMENT_NAME_BYTES_MAX;
    if long || !name.bytes().all(good) {
        place.report(
            format!("the text {name:?} cannot stand here"),
            format!("write 1 to {ATTACHMENT_NAME_BYTES_MAX} letters, digits and -_.@"),
        );
    }
}

impl FromNode for ClassRule {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let cgroup = table.or::<Option<String>>("cgroup", None);
        let command = table.or::<Option<String>>("command", None);
        let user = table.or::<Option<UserNumber>>("user", None);
        let max_bytes = table.or::<Option<Size>>("max_bytes", None);
        let max_depth = table.or("max_depth", None);
        let class = table.required("class", "write class = \"L\" or class = \"T\"");
        table.finish();
        let (cgroup, command) = (cgroup?, command?);
        if cgroup.as_ref().is_some_and(|path| !path.starts_with('/')) {
            let what_to_do = "write the beginning of a path in /proc/PID/cgroup, like \
                              \"/system.slice/postgresql\"";
            let place = found.place.key("cgroup");
            place.report("does not begin with /", what_to_do);
        }
        if let Some(long) = command
            .as_ref()
            .filter(|name| name.len() > COMMAND_BYTES_MAX)
        {
            let kept = String::from_utf8_lossy(&long.as_bytes()[..COMMAND_BYTES_MAX]);
            let error =
                format!("is longer than the {COMMAND_BYTES_MAX} bytes that the kernel keeps");
            let place = found.place.key("command");
            place.report(error, format!("write {kept:?}"));
        }
        let rule = Self {
            cgroup,
            command,
            user: user?.map(|UserNumber(number)| number),
            max_bytes: max_bytes?.map(|size| size.bytes),
            max_depth: max_depth?,
            class: class?,
        };
        let sizes = rule.max_bytes.is_some() || rule.max_depth.is_some();
        if !rule.names_process() && !sizes {
            let what_to_do =
                "write one, or the class of the attachment: class = \"L\" above its rules";
            found.place.report("has no condition", what_to_do);
        }
        if rule.max_depth == Some(0) {
            let what_to_do = "write at least 1: a request counts itself";
            let place = found.place.key("max_depth");
            place.report("0 holds for no request", what_to_do);
        }
        Some(rule)
    }
}

/// A user's number, written as such or as a name.
struct UserNumber(u32);

impl FromNode for UserNumber {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        if let Value::String(name) = found.value {
            let known = User::from_name(name).ok().flatten();
            if let Some(user) = known {
                return Some(Self(user.uid.as_raw()));
            }
            let what_to_do = "write the name of a user of this machine, or a number";
            let error = format!("there is no user {name:?}");
            found.place.report(error, what_to_do);
            return None;
        }
        u32::from_node(found).map(Self)
    }
}

#[cfg(test)]
mod tests;
