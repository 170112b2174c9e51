//! The configuration file of attachments: its keys are the options of the command line.

use crate::args::AttachCommand;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, FromArgMatches as _, Subcommand as _};
use config::ConfigError;
use control::attachments::{self, ClassCondition, Entry, Fault, Kind, Word};
use frontend::attach::File;
use frontend::{ClassRule, ClassRules};
use std::error::Error as _;
use std::path::Path;

/// Kinds that can determine the process of a request.
const KNOW_PROCESSES: [&str; 1] = ["fuse"];

/// Reads and checks the file at `path`. If it is a pipe, waits for its writer only if `waits`.
///
/// # Errors
/// All errors found, with file, line and key.
pub fn load(path: &Path, waits: bool) -> Result<File, ConfigError> {
    checked(|kinds, words| attachments::load(path, waits, kinds, words))
}

type Words<'a> = &'a dyn Fn(&Entry) -> Result<AttachCommand, Vec<Fault>>;

fn checked(
    read: impl FnOnce(&[Kind], Words<'_>) -> Result<attachments::File<AttachCommand>, ConfigError>,
) -> Result<File, ConfigError> {
    let kinds = clap::Command::new("attachments").no_binary_name(true);
    let kinds = AttachCommand::augment_subcommands(kinds);
    let known = kinds.get_subcommands().map(|kind| Kind {
        name: kind.get_name().to_owned(),
        keys: kind.get_arguments().flat_map(keys_of).collect(),
        knows_process: KNOW_PROCESSES.contains(&kind.get_name()),
    });
    let known: Vec<Kind> = known.collect();
    let file = read(&known, &|entry| command_of(kinds.clone(), entry))?;
    let wanted = file.attachments.into_iter().map(|(entry, command)| {
        let rules = ClassRules::new(entry.class_rules.iter().map(rule_of).collect());
        command.wanted(rules, Some(entry))
    });
    Ok(File {
        interface: file.interface,
        wanted: wanted.collect(),
    })
}

fn rule_of(condition: &ClassCondition) -> ClassRule {
    let depth = |depth| usize::try_from(depth).unwrap_or(usize::MAX);
    ClassRule {
        cgroup: condition.cgroup.clone(),
        command: condition.command.clone(),
        user: condition.user,
        max_bytes: condition.max_bytes,
        max_depth: condition.max_depth.map(depth),
        class: condition.class,
    }
}

/// Returns the key of an argument: its flag's word, or the name of what has no flag.
fn key_of(argument: &Arg) -> String {
    let name = argument.get_long().unwrap_or(argument.get_id().as_str());
    name.replace('-', "_")
}

/// Returns all keys of an argument, those of earlier versions included.
fn keys_of(argument: &Arg) -> Vec<String> {
    let aliases = argument.get_all_aliases().into_iter().flatten();
    let aliases = aliases.map(|alias| alias.replace('-', "_"));
    [key_of(argument)].into_iter().chain(aliases).collect()
}

/// Reads the keys of an entry, of a kind and with keys that are known.
fn command_of(kinds: clap::Command, entry: &Entry) -> Result<AttachCommand, Vec<Fault>> {
    let kind = kinds
        .find_subcommand(&entry.kind)
        .expect("a known kind")
        .clone();
    let mut words = vec![entry.kind.clone()];
    let mut last = Vec::new();
    let mut faults = Vec::new();
    let keys = |argument| {
        keys_of(argument)
            .into_iter()
            .map(move |key| (argument, key))
    };
    for (argument, key) in kind.get_arguments().flat_map(keys) {
        let is_switch = matches!(argument.get_action(), ArgAction::SetTrue);
        match (entry.words.get(&key), argument.get_long()) {
            (None, _) => {}
            (Some(Word::Switch(on)), Some(long)) if is_switch => {
                words.extend(on.then(|| format!("--{long}")));
            }
            (Some(Word::Text(text)), Some(long)) if !is_switch => {
                words.push(format!("--{long}={text}"));
            }
            (Some(Word::Text(text)), None) => last.push(text.clone()),
            (Some(_), _) => {
                let expected = if is_switch {
                    "true or false"
                } else {
                    "a string"
                };
                faults.push(Fault {
                    key: Some(key),
                    error: "has a value of the wrong type".to_owned(),
                    what_to_do: format!("use {expected}"),
                });
            }
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    words.push("--".to_owned());
    words.extend(last);
    let matches = kinds.try_get_matches_from(words);
    let command = matches.and_then(|matches| AttachCommand::from_arg_matches(&matches));
    command.map_err(|error| vec![fault(&error, &kind)])
}

/// An error of the command line as a fault of a file.
fn fault(error: &clap::Error, kind: &clap::Command) -> Fault {
    let text = |context| match error.get(context) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let keys = keys_in(&text(ContextKind::InvalidArg), kind);
    let key = keys.first().cloned();
    match error.kind() {
        ErrorKind::MissingRequiredArgument => match &keys[..] {
            [only] => Fault {
                key: Some(only.clone()),
                error: "is missing".to_owned(),
                what_to_do: format!("see `switchyard attach {} --help`", kind.get_name()),
            },
            several => Fault {
                key: None,
                error: "a key is missing".to_owned(),
                what_to_do: format!("add one of {}", several.join(", ")),
            },
        },
        ErrorKind::ArgumentConflict => {
            let others = keys_in(&text(ContextKind::PriorArg), kind);
            Fault {
                key,
                error: format!("cannot be used with {}", others.join(", ")),
                what_to_do: "remove one of them".to_owned(),
            }
        }
        _ => {
            let allowed = text(ContextKind::ValidValue);
            let reason = error.source().map(ToString::to_string);
            let reason = reason.filter(|_| allowed.is_empty());
            Fault {
                key,
                error: format!("invalid value {:?}", text(ContextKind::InvalidValue)),
                what_to_do: reason.unwrap_or_else(|| format!("use one of {allowed}")),
            }
        }
    }
}

/// Returns the keys of the arguments that an error of the command line names, in its order.
fn keys_in(text: &str, kind: &clap::Command) -> Vec<String> {
    let place = |argument: &Arg| {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
        let long = argument.get_long().map(|long| format!("--{long}"));
        let value = argument.get_value_names().and_then(<[_]>::first);
        let name = long.or_else(|| Some(value?.to_string()))?;
        let place = words.into_iter().position(|word| word == name)?;
        Some((place, key_of(argument)))
    };
    let mut found: Vec<_> = kind.get_arguments().filter_map(place).collect();
    found.sort();
    found.into_iter().map(|(_, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::units::CoreId;
    use frontend::attach::{FrontEndOptions, SourceDevice, Wanted};

    fn read(text: &str) -> Result<File, ConfigError> {
        checked(|kinds, words| attachments::parse(text, kinds, words))
    }

    #[test]
    fn the_example_is_read() {
        let file = read(include_str!(
            "../../../../docs/switchyard-attach.example.toml"
        ));
        let file = file.expect("the example is good");
        assert!(file.interface.address.is_some());
        let kinds = file.wanted.iter().map(|wanted| wanted.front_end.kind());
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            ["vhost", "nbd", "nbd", "ublk", "fuse"]
        );
        let has_rules = |wanted: &Wanted| {
            let rules = match &wanted.front_end {
                FrontEndOptions::Nbd(options) => &options.rules,
                FrontEndOptions::Fuse(options) => &options.rules,
                FrontEndOptions::Vhost(options) => &options.rules,
                FrontEndOptions::Ublk(options) => &options.rules,
            };
            !rules.is_empty()
        };
        assert!(file.wanted.iter().any(has_rules));
    }

    #[test]
    fn keys_are_the_flags_of_the_kind() {
        let file = read(
            "[[attachments]]
             name = \"a\"
             kind = \"nbd\"
             listen = \"127.0.0.1:0\"
             target = \"127.0.0.1:4420\"
             block_size = 512
             cores = [0, 2]
             class = \"L\"
             read_only = true
             io_timeout = 5",
        );
        let file = file.expect("a good file");
        let FrontEndOptions::Nbd(options) = &file.wanted[0].front_end else {
            panic!("it is NBD");
        };
        assert!(options.read_only && options.class == switch::Class::Latency);
        assert_eq!(options.cores, [0, 2].map(CoreId));
        let SourceDevice::Remote(remote) = &file.wanted[0].device else {
            panic!("it is a target");
        };
        let host = format!("{:?}", remote.host);
        assert!(
            host.contains("loss_timeout: Some(Nanos(5000000000))"),
            "{host}"
        );
    }

    #[test]
    fn files_have_the_processor_of_the_other_kinds_and_that_of_earlier_versions() {
        let read_core = |line: &str| -> Result<Option<CoreId>, ConfigError> {
            let text = "[[attachments]]\nname = \"a\"\nkind = \"fuse\"\nmountpoint = \"/mnt\"\n";
            let file = read(&format!("{text}ram = \"1M\"\n{line}"))?;
            match &file.wanted[0].front_end {
                FrontEndOptions::Fuse(options) => Ok(options.core),
                _ => panic!("it is FUSE"),
            }
        };
        for line in ["cores = [3]", "cores = \"3\"", "core = 3"] {
            assert_eq!(read_core(line).expect(line), Some(CoreId(3)), "{line}");
        }
        let refused = |line| read_core(line).expect_err(line).to_string();
        let two = refused("cores = [0, 1]");
        assert!(two.contains("attachments[0].cores"), "{two}");
        refused("core = 0\ncores = 0");
    }

    #[test]
    fn faults_of_flags_are_faults_of_keys() {
        for (keys, expected) in [
            (
                "kind = \"nbd\"\nram = \"1M\"",
                "attachments[0]: a key is missing; add one of socket, listen",
            ),
            (
                "kind = \"nbd\"\nsocket = \"/s\"",
                "add one of target, ram, file, flash, null",
            ),
            (
                "kind = \"fuse\"\nram = \"1M\"",
                "attachments[0].mountpoint: is missing",
            ),
            (
                "kind = \"vhost\"\nram = \"1M\"",
                "attachments[0].socket: is missing",
            ),
            (
                "kind = \"nbd\"\nsocket = \"/s\"\nram = \"1M\"\nnull = \"1M\"",
                "cannot be used with",
            ),
            (
                "kind = \"nbd\"\nsocket = \"/s\"\nram = \"much\"",
                "line 5: attachments[0].ram: invalid value \"much\"; \"much\" is not",
            ),
            (
                "kind = \"nbd\"\nsocket = \"/s\"\nram = \"1M\"\nclass = \"X\"",
                "line 6: attachments[0].class: invalid value \"X\"",
            ),
            (
                "kind = \"nbd\"\nsocket = \"/s\"\nram = \"1M\"\npoll = \"often\"",
                "attachments[0].poll: invalid value \"often\"; use one of always, never, auto",
            ),
            (
                "kind = \"nbd\"\nsocket = \"/s\"\nram = \"1M\"\nread_only = \"yes\"",
                "attachments[0].read_only: has a value of the wrong type; use true or false",
            ),
            (
                "kind = \"nbd\"\nsocket = \"/s\"\nram = \"1M\"\nqueues = 2",
                "line 6: attachments[0].queues: is not a known key",
            ),
        ] {
            let text = format!("[[attachments]]\nname = \"a\"\n{keys}");
            let error = read(&text).expect_err(keys).to_string();
            assert!(error.contains(expected), "{keys}\n{error}");
        }
    }
}
