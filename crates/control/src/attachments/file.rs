//! The file of `switchyard attach --config`.
//!
//! The keys of an attachment are the flags of its kind of front end, which the command line knows.
//! So an [`Entry`] keeps them as [`Word`]s, a [`Kind`] names those that there are, and a function of
//! the caller reads the words; it answers with [`Fault`]s, which are told with line and key.

use std::collections::BTreeMap;
use std::path::Path;

use nix::unistd::User;
use switch::Class;

use crate::limits::{ATTACHMENT_NAME_BYTES_MAX, ATTACHMENTS_MAX};
use config::nearest;
use config::schema::{ApiAddress, ApiLimits, Size};
use config::{ConfigError, Format, FoundNode, FromNode, Spot, Table, Value};
use config::{check_api_limits, from_table, parse_part, parsed, read, read_waiting};

/// A kind of front end.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Its name, such as `nbd`.
    pub name: String,
    /// The keys of such an attachment, without those of all: `name`, `kind` and `class_rules`.
    pub keys: Vec<String>,
    /// The front end knows the process of a request.
    pub knows_process: bool,
}

/// The value of a key, as the command line takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// true or false.
    Switch(bool),
    /// A text, a number, or a list with commas.
    Text(String),
}

/// An attachment as the file says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, unique in the file.
    pub name: String,
    /// The kind of front end.
    pub kind: String,
    /// The other keys.
    pub words: BTreeMap<String, Word>,
    /// The rules that give requests a class, in order.
    pub class_rules: Vec<ClassCondition>,
}

/// The conditions of a rule, and the class of requests that meet all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassCondition {
    /// Beginning of the path of the process's control group.
    pub cgroup: Option<String>,
    /// Name of the process.
    pub command: Option<String>,
    /// Number of the process's user.
    pub user: Option<u32>,
    /// The most bytes of data.
    pub max_bytes: Option<u64>,
    /// The most requests under way, this one included.
    pub max_depth: Option<u32>,
    /// Class of the requests.
    pub class: Class,
}

impl ClassCondition {
    fn is_met_by_all(&self) -> bool {
        let Self {
            cgroup,
            command,
            user,
            max_bytes,
            max_depth,
            class: _,
        } = self;
        let texts = cgroup.is_some() || command.is_some();
        !texts && user.is_none() && max_bytes.is_none() && max_depth.is_none()
    }
}

/// A fault of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key; `None` where the attachment as a whole is meant.
    pub key: Option<String>,
    /// The fault.
    pub error: String,
    /// The remedy.
    pub what_to_do: String,
}

/// The HTTP interface of a process of front ends. It is fixed while that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its address.
    pub address: Option<ApiAddress>,
    /// Limits of its clients.
    pub limits: ApiLimits,
}

/// A file with attachments that were read as `T`.
#[derive(Clone, Debug)]
pub struct File<T> {
    /// The HTTP interface.
    pub interface: Interface,
    /// The attachments, in order.
    pub attachments: Vec<(Entry, T)>,
}

/// Reads and checks the TOML file at `path`; `words` reads the keys of one attachment. Only where it
/// `waits` may another process write to a pipe there.
///
/// # Errors
/// Every problem found, with file, line and key; or the reason for which it cannot be read.
pub fn load<T>(
    path: &Path,
    waits: bool,
    kinds: &[Kind],
    words: impl Fn(&Entry) -> Result<T, Vec<Fault>>,
) -> Result<File<T>, ConfigError> {
    let text = if waits {
        read_waiting(path)
    } else {
        read(path)
    }?;
    parse(&text, kinds, words).map_err(|error| error.in_file(path))
}

/// Reads and checks the text of a file.
///
/// # Errors
/// Every problem found, with line and key.
pub fn parse<T>(
    text: &str,
    kinds: &[Kind],
    words: impl Fn(&Entry) -> Result<T, Vec<Fault>>,
) -> Result<File<T>, ConfigError> {
    parse_part(text, Format::Toml, |raw: Raw, root| {
        check_api_limits(raw.api_limits, root);
        Some(File {
            interface: Interface {
                address: raw.api,
                limits: raw.api_limits,
            },
            attachments: check_all(raw.attachments, kinds, words, &root.key("attachments")),
        })
    })
}

/// Reads the keys of the attachments, each by its kind; those with a problem are reported and left out.
fn check_all<T>(
    attachments: Vec<Entry>,
    kinds: &[Kind],
    words: impl Fn(&Entry) -> Result<T, Vec<Fault>>,
    all: &Spot<'_>,
) -> Vec<(Entry, T)> {
    if attachments.len() > ATTACHMENTS_MAX {
        let error = format!("{} attachments are too many", attachments.len());
        all.report(
            error,
            format!("keep at most {ATTACHMENTS_MAX} in one process"),
        );
    }
    let mut read = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    for (index, entry) in attachments.into_iter().enumerate() {
        let place = all.index(index);
        if !names.insert(entry.name.clone()) {
            let error = format!("{:?} is the name of an earlier one", entry.name);
            place.key("name").report(error, "choose another name");
        }
        if !check(&entry, kinds, &place) {
            continue;
        }
        match words(&entry) {
            Ok(value) => read.push((entry, value)),
            Err(faults) => {
                for fault in faults {
                    let place = fault.key.map_or(place.clone(), |key| place.key(&key));
                    place.report(fault.error, fault.what_to_do);
                }
            }
        }
    }
    read
}

/// Reports unknown kinds and keys, and rules that the kind cannot follow. Returns true if there are none.
fn check(entry: &Entry, kinds: &[Kind], place: &Spot<'_>) -> bool {
    let Some(kind) = kinds.iter().find(|kind| kind.name == entry.kind) else {
        let names = kinds.iter().map(|kind| kind.name.as_str());
        let what_to_do = did_you_mean(&entry.kind, names);
        let error = format!("there is no kind {:?}", entry.kind);
        place.key("kind").report(error, what_to_do);
        return false;
    };
    let keys = || kind.keys.iter().map(String::as_str);
    let mut sound = true;
    for key in entry.words.keys() {
        if !keys().any(|known| known == key) {
            let what_to_do = did_you_mean(key, keys().chain(COMMON_KEYS));
            place.key(key).report("is not a known key", what_to_do);
            sound = false;
        }
    }
    for (index, rule) in entry.class_rules.iter().enumerate() {
        let place = place.key("class_rules").index(index);
        for (key, is_there) in [
            ("cgroup", rule.cgroup.is_some()),
            ("command", rule.command.is_some()),
            ("user", rule.user.is_some()),
        ] {
            if is_there && !kind.knows_process {
                let error = format!("{} does not know the process of a request", entry.kind);
                let what_to_do = "use max_bytes or max_depth, or the kind \"fuse\"";
                place.key(key).report(error, what_to_do);
                sound = false;
            }
        }
    }
    sound
}

fn did_you_mean<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    match nearest(given, known.iter().copied()) {
        Some(name) => format!("did you mean \"{name}\"?"),
        None => format!("known here are {}", known.join(", ")),
    }
}

struct Raw {
    api: Option<ApiAddress>,
    api_limits: ApiLimits,
    attachments: Vec<Entry>,
}

from_table! {
    Raw {
        api: optional(),
        api_limits: or_default(),
        attachments: required("write each attachment as [[attachments]] with name and kind"),
    }
}

/// The keys of an attachment of any kind.
const COMMON_KEYS: [&str; 3] = ["name", "kind", "class_rules"];

impl FromNode for Entry {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        // Its keys are those of its kind: they are not known here.
        let table = Table::open(found)?;
        let name = table.required::<String>("name", "write its name, like name = \"vm1\"");
        let kind = table.required("kind", "write its kind, like kind = \"nbd\"");
        let class_rules = table.or_default("class_rules");
        if let Some(name) = &name {
            check_name(name, &table.place("name"));
        }
        let words: Vec<_> = table
            .others(&COMMON_KEYS)
            .map(|(key, found)| Some((key.clone(), Word::from_node(&found)?)))
            .collect();
        Some(Self {
            name: name?,
            kind: kind?,
            words: words.into_iter().collect::<Option<_>>()?,
            class_rules: class_rules?,
        })
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

impl FromNode for Word {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Integer(number) => Some(number.to_string()),
            _ => None,
        };
        let word = match found.value {
            Value::Boolean(value) => Some(Self::Switch(*value)),
            Value::Array(items) => {
                let items: Option<Vec<_>> = items.iter().map(|item| text(&item.value)).collect();
                items.map(|items| Self::Text(items.join(",")))
            }
            value => text(value).map(Self::Text),
        };
        word.or_else(|| {
            found.wrong_type("a text, an integer, true or false, or a list of texts or integers")
        })
    }
}

/// Bytes of a process's name that the kernel keeps (`TASK_COMM_LEN` without its final zero).
const COMMAND_BYTES_MAX: usize = 15;

impl FromNode for ClassCondition {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let cgroup = table.optional::<String>("cgroup");
        let command = table.optional::<String>("command");
        let user = table.optional::<UserNumber>("user");
        let max_bytes = table.optional::<Size>("max_bytes");
        let max_depth = table.optional("max_depth");
        let class = table.required::<ClassWord>("class", "write class = \"L\" or class = \"T\"");
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
            class: class?.0,
        };
        if rule.is_met_by_all() {
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

struct ClassWord(Class);

impl FromNode for ClassWord {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        parsed(found, "\"L\" or \"T\"").map(Self)
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
