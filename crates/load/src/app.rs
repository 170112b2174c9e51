//! An application (app) of a load, and its text form.

use super::limits;
use std::fmt;
use std::str::FromStr;
use switch::Class;

/// Order of an app's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Ascending, each request at the end of the previous one; wraps at the end.
    Sequential,
    /// Random, aligned to the request size.
    Random,
}

/// Inter-arrival times of an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// All equal.
    #[default]
    Even,
    /// Exponentially distributed, as of many independent users: a Poisson process.
    Poisson,
}

/// An app: a number of threads with the same load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// Name in reports.
    pub name: String,
    /// Order of its addresses.
    pub access: Access,
    /// Percentage of reads; the remainder is writes.
    pub read_percent: u8,
    /// Bytes of a request.
    pub block_bytes: u32,
    /// Requests that each thread keeps in flight; an upper bound if there is a rate.
    pub depth: u32,
    /// Number of threads.
    pub count: u32,
    /// The core that each thread is pinned to; `None` leaves the choice to the kernel.
    pub cpu: Option<u32>,
    /// Connections of each thread to a remote target.
    pub queues: u16,
    /// Requests per second of all threads together (an open loop); `None` issues the next request
    /// when one completes (a closed loop).
    pub rate: Option<u64>,
    /// Inter-arrival times; no effect without a rate.
    pub pace: Pace,
    /// Writes like a file system with a journal in ordered mode: after this number of data
    /// requests, and once they are complete, a Flush and then a durable write. The thread waits for
    /// each of the two. `[Yu §4.8]`
    pub journal: Option<u32>,
    /// Class of the requests. A `Latency` thread raises its own priority if the process may, and
    /// its queues carry the class.
    pub class: Option<Class>,
    /// Takes the class from the thread's current I/O priority instead
    /// ([`ByPriority`](super::ByPriority)).
    pub class_by_io_priority: bool,
}

impl App {
    /// Class of the requests, unless it follows the I/O priority.
    #[must_use]
    pub fn class_or_default(&self) -> Class {
        self.class.unwrap_or(Class::DEFAULT)
    }
}

/// Form of an app's text, for help and errors.
pub const APP_FORM: &str = "NAME:rw=randread,bs=4k,depth=32,count=1,cpu=1[,queues=1][,rate=IOPS][,pace=even][,mix=70][,journal=BLOCKS][,class=L]";

const KEYS: &str = "rw, bs, depth, count, cpu, queues, rate, pace, mix, journal, class";
const PATTERNS: &str = "read, write, randread, randwrite, rw or randrw";

/// Error in an app's text: the app, the key, and a valid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct AppError {
    app: Option<String>,
    key: Option<String>,
    remedy: String,
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(app) = &self.app {
            write!(f, "app \"{app}\": ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.remedy)
    }
}

impl AppError {
    /// Error in the app's `key`.
    pub(super) fn key(app: &str, key: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            app: Some(app.to_owned()),
            key: Some(key.into()),
            remedy: remedy.into(),
        }
    }
}

impl FromStr for App {
    type Err = AppError;

    fn from_str(text: &str) -> Result<Self, AppError> {
        let form = |remedy: String| AppError {
            app: None,
            key: None,
            remedy,
        };
        let Some((name, keys)) = text.split_once(':') else {
            let text = shortened(text);
            return Err(form(format!("\"{text}\" is not an app; use {APP_FORM}")));
        };
        let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > limits::NAME_BYTES_MAX || !name.chars().all(named) {
            return Err(form(format!(
                "invalid app name \"{}\"; use 1 to {} letters, digits, '-', '_' or '.'",
                shortened(name),
                limits::NAME_BYTES_MAX
            )));
        }
        Draft::default().read(name, keys)?.finish(name)
    }
}

/// Settings read from the text so far.
#[derive(Debug, Default)]
struct Draft {
    pattern: Option<(Access, Option<u8>)>,
    pattern_text: String,
    block_bytes: Option<u32>,
    depth: Option<u32>,
    count: Option<u32>,
    cpu: Option<u32>,
    queues: Option<u16>,
    rate: Option<u64>,
    pace: Option<Pace>,
    mix: Option<u8>,
    journal: Option<u32>,
    /// `Some(None)` follows the I/O priority.
    class: Option<Option<Class>>,
}

impl Draft {
    fn read(mut self, name: &str, keys: &str) -> Result<Self, AppError> {
        for item in keys.split(',') {
            let Some((key, value)) = item.split_once('=') else {
                let item = shortened(item);
                let remedy = format!("use KEY=VALUE with the keys {KEYS}");
                return Err(AppError::key(name, format!("\"{item}\""), remedy));
            };
            let wrong =
                |remedy: String| AppError::key(name, format!("{key}={}", shortened(value)), remedy);
            let number = |least: u64, most: u64| {
                let parsed = value
                    .parse::<u64>()
                    .ok()
                    .filter(|n| (least..=most).contains(n));
                parsed.ok_or_else(|| wrong(format!("use a whole number from {least} to {most}")))
            };
            let depth_max = u64::from(limits::DEPTH_MAX);
            let count_max = u64::from(limits::COUNT_MAX);
            let fresh = match key {
                "rw" => {
                    value.clone_into(&mut self.pattern_text);
                    let remedy = || wrong(format!("use {PATTERNS}"));
                    put(&mut self.pattern, pattern(value).ok_or_else(remedy)?)
                }
                "bs" => put(&mut self.block_bytes, size(value).map_err(wrong)?),
                "depth" => put(&mut self.depth, narrow(number(1, depth_max)?)),
                "count" => put(&mut self.count, narrow(number(1, count_max)?)),
                "cpu" => put(&mut self.cpu, narrow(number(0, 1023)?)),
                "queues" => put(
                    &mut self.queues,
                    narrow(number(1, limits::QUEUES_MAX.into())?),
                ),
                "rate" => put(&mut self.rate, number(1, limits::RATE_MAX)?),
                "pace" => {
                    let pace = match value {
                        "even" => Pace::Even,
                        "poisson" => Pace::Poisson,
                        _ => return Err(wrong("use even or poisson".into())),
                    };
                    put(&mut self.pace, pace)
                }
                "mix" => put(&mut self.mix, narrow(number(0, 100)?)),
                "journal" => {
                    let most = u64::from(limits::JOURNAL_BLOCKS_MAX);
                    put(&mut self.journal, narrow(number(1, most)?))
                }
                "class" => {
                    let class = match value {
                        "ioprio" => None,
                        word => Some(word.parse().map_err(|_| {
                            wrong("use L, T, or ioprio (class by I/O priority)".into())
                        })?),
                    };
                    put(&mut self.class, class)
                }
                _ => {
                    let remedy = format!("unknown key; use {KEYS}");
                    return Err(AppError::key(
                        name,
                        format!("\"{}\"", shortened(key)),
                        remedy,
                    ));
                }
            };
            if !fresh {
                return Err(AppError::key(name, key, "given twice; use it once"));
            }
        }
        Ok(self)
    }

    fn finish(self, name: &str) -> Result<App, AppError> {
        let Some((access, fixed)) = self.pattern else {
            return Err(AppError::key(
                name,
                "rw",
                format!("is missing; add rw= with {PATTERNS}"),
            ));
        };
        let read_percent = match (fixed, self.mix) {
            (Some(percent), None) => percent,
            (None, mix) => mix.unwrap_or(50),
            (Some(_), Some(mix)) => {
                let remedy = format!(
                    "rw={} is not a mixed load; omit mix, or use rw=rw or rw=randrw",
                    self.pattern_text
                );
                return Err(AppError::key(name, format!("mix={mix}"), remedy));
            }
        };
        if let (Some(_), None) = (self.pace, self.rate) {
            let remedy = "needs a rate; add rate=, or omit pace";
            return Err(AppError::key(name, "pace", remedy));
        }
        if let Some(blocks) = self.journal
            && (read_percent > 0 || self.rate.is_some())
        {
            let remedy = "needs a write-only closed loop; use rw=write or rw=randwrite, and omit \
                rate";
            return Err(AppError::key(name, format!("journal={blocks}"), remedy));
        }
        Ok(App {
            name: name.to_owned(),
            access,
            read_percent,
            block_bytes: self.block_bytes.unwrap_or(4096),
            depth: self.depth.unwrap_or(1),
            count: self.count.unwrap_or(1),
            cpu: self.cpu,
            queues: self.queues.unwrap_or(1),
            rate: self.rate,
            pace: self.pace.unwrap_or_default(),
            journal: self.journal,
            class: self.class.flatten(),
            class_by_io_priority: self.class == Some(None),
        })
    }
}

/// Fills an empty `place`. Returns false if it was already filled.
fn put<T>(place: &mut Option<T>, value: T) -> bool {
    place.replace(value).is_none()
}

/// Returns the access order, and the share of reads if the word fixes it.
fn pattern(word: &str) -> Option<(Access, Option<u8>)> {
    Some(match word {
        "read" => (Access::Sequential, Some(100)),
        "write" => (Access::Sequential, Some(0)),
        "rw" => (Access::Sequential, None),
        "randread" => (Access::Random, Some(100)),
        "randwrite" => (Access::Random, Some(0)),
        "randrw" => (Access::Random, None),
        _ => return None,
    })
}

/// `4096`, `4k`, `1m`: a multiple of 512.
fn size(text: &str) -> Result<u32, String> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        _ => (text, 0),
    };
    let (least, most) = (limits::BLOCK_BYTES_MIN, limits::BLOCK_BYTES_MAX);
    digits
        .parse::<u32>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| (least..=most).contains(bytes) && bytes.is_multiple_of(least))
        .ok_or_else(|| "use a multiple of 512 up to 1m, such as 512, 4k or 128k".to_owned())
}

fn narrow<T: TryFrom<u64, Error: fmt::Debug>>(number: u64) -> T {
    T::try_from(number).expect("checked against the bounds of its key")
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_form_is_read() {
        let text = "web:rw=randrw,bs=4k,depth=32,count=2,cpu=1,queues=3,rate=1000,pace=poisson,mix=70,class=L";
        let app: App = text.parse().unwrap();
        assert_eq!(
            app,
            App {
                name: "web".into(),
                access: Access::Random,
                read_percent: 70,
                block_bytes: 4096,
                depth: 32,
                count: 2,
                cpu: Some(1),
                queues: 3,
                rate: Some(1000),
                pace: Pace::Poisson,
                journal: None,
                class: Some(Class::Latency),
                class_by_io_priority: false,
            }
        );
        let follows: App = "a:rw=read,class=ioprio".parse().unwrap();
        assert!(follows.class_by_io_priority && follows.class.is_none());
        let short: App = "a:rw=write".parse().unwrap();
        assert_eq!((short.access, short.read_percent), (Access::Sequential, 0));
        assert_eq!((short.block_bytes, short.depth, short.count), (4096, 1, 1));
        assert_eq!((short.cpu, short.queues, short.rate), (None, 1, None));
        let journal: App = "a:rw=write,journal=32".parse().unwrap();
        assert_eq!((journal.journal, short.journal), (Some(32), None));
        assert_eq!("a:rw=rw,bs=1m".parse::<App>().unwrap().read_percent, 50);
    }

    #[test]
    fn an_error_names_the_app_the_key_and_what_would_be_right() {
        for (text, expected) in [
            ("randread", "is not an app; use NAME:rw="),
            (":rw=read", "invalid app name"),
            ("a b:rw=read", "invalid app name"),
            ("a:", "app \"a\": \"\": use KEY=VALUE"),
            ("a:bs=4k", "app \"a\": rw: is missing"),
            ("a:rw=raed", "app \"a\": rw=raed: use read, write, randread"),
            (
                "a:rw=read,bs=5000",
                "app \"a\": bs=5000: use a multiple of 512",
            ),
            ("a:rw=read,bs=2m", "bs=2m: use a multiple of 512 up to 1m"),
            ("a:rw=read,bs=", "bs=: use a multiple"),
            ("a:rw=read,bs=4294967295k", "use a multiple"),
            (
                "a:rw=read,depth=0",
                "app \"a\": depth=0: use a whole number from 1 to 1023",
            ),
            ("a:rw=read,depth=x", "depth=x: use a whole number"),
            ("a:rw=read,rate=0", "rate=0: use a whole number from 1"),
            (
                "a:rw=read,journal=8",
                "app \"a\": journal=8: needs a write-only closed loop",
            ),
            ("a:rw=write,journal=0", "journal=0: use a whole number"),
            ("a:rw=read,pace=poisson", "pace: needs a rate"),
            ("a:rw=read,rate=1,pace=x", "pace=x: use even or poisson"),
            (
                "a:rw=read,class=x",
                "app \"a\": class=x: use L, T, or ioprio",
            ),
            ("a:rw=read,mix=50", "mix=50: rw=read is not a mixed load"),
            (
                "a:rw=rw,mix=101",
                "mix=101: use a whole number from 0 to 100",
            ),
            (
                "a:rw=read,iodepth=3",
                "\"iodepth\": unknown key; use rw, bs",
            ),
            ("a:rw=read,depth=1,depth=2", "depth: given twice"),
            ("a:rw=read,,", "use KEY=VALUE"),
        ] {
            let error = text.parse::<App>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
