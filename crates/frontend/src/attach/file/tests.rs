//! Files with faults, each told with its line and key; and what is read from good ones.

use super::*;
use config::Keys as _;
use switch::Class;

config::decoded! {
    #[derive(Clone, Debug, PartialEq)]
    struct Nbd {
        socket: Option<String> = or(None),
        cores: Option<u32> = text(one),
        read_only: bool = or(false),
    }

    #[derive(Clone, Debug, PartialEq)]
    struct Fuse {
        mountpoint: String = required("name it"),
        ram: Option<Size> = or(None),
    }
}

fn one(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "write one")
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Nbd(Nbd),
    Fuse(Fuse),
}

impl Kinds for Kind {
    const NAMES: &'static [&'static str] = &["nbd", "fuse"];

    fn read(kind: &str, table: &Table<'_>) -> Option<Self> {
        match kind {
            "nbd" => Nbd::read(table).map(Self::Nbd),
            _ => Fuse::read(table).map(Self::Fuse),
        }
    }

    fn check(&self, _: &Spot<'_>) {}

    fn knows_process(&self) -> bool {
        matches!(self, Self::Fuse(_))
    }
}

fn read(text: &str) -> Result<Entries<Kind>, ConfigError> {
    parse(text)
}

#[test]
fn a_file_is_read_in_order() {
    let file = read(
        "api = \"unix:/run/a.sock\"
         [api_limits]
         idle_timeout_ms = 5000
         [[attachments]]
         name = \"b\"
         kind = \"nbd\"
         socket = \"/run/b\"
         read_only = true
         [[attachments]]
         name = \"a\"
         kind = \"fuse\"
         mountpoint = \"/mnt\"
         ram = 4096
         [[attachments.class_rules]]
         user = \"root\"
         command = \"fio\"
         max_bytes = \"16K\"
         max_depth = 4
         class = \"L\"",
    );
    let file = file.expect("a good file");
    assert!(matches!(file.interface.address, Some(ApiAddress::Unix(_))));
    let limits = file.interface.limits;
    assert_eq!((limits.idle_timeout_ms, limits.connections), (5_000, 64));
    let [b, a] = &file.attachments[..] else {
        panic!("two attachments");
    };
    let nbd = Nbd {
        socket: Some("/run/b".to_owned()),
        cores: None,
        read_only: true,
    };
    assert_eq!((b.name.as_str(), &b.kind), ("b", &Kind::Nbd(nbd)));
    let fuse = Fuse {
        mountpoint: "/mnt".to_owned(),
        ram: Some(Size::from_bytes(4096)),
    };
    assert_eq!(a.kind, Kind::Fuse(fuse));
    let expected = ClassRule {
        cgroup: None,
        command: Some("fio".to_owned()),
        user: Some(0),
        max_bytes: Some(16 << 10),
        max_depth: Some(4),
        class: Class::Latency,
    };
    assert_eq!(a.class_rules, [expected]);
}

#[test]
fn faults_are_told_with_line_and_key() {
    const NBD: &str = "[[attachments]]\nname = \"a\"\nkind = \"nbd\"\n";
    for (text, expected) in [
        ("", "attachments: is missing"),
        (
            "attachments = []\napp = 1",
            "line 2: app: is not a known key; did you mean \"api\"?",
        ),
        (
            "[[attachments]]\nkind = \"nbd\"",
            "attachments[0].name: is missing",
        ),
        (
            "[[attachments]]\nname = \"a/b\"\nkind = \"nbd\"",
            "line 2: attachments[0].name: the text \"a/b\" cannot stand here",
        ),
        (
            "[[attachments]]\nname = \"a\"\nkind = \"ndb\"",
            "line 3: attachments[0].kind: the text \"ndb\" cannot stand here; did you mean \"nbd\"?",
        ),
        (
            &format!("{NBD}sokcet = \"/a\""),
            "line 4: attachments[0].sokcet: is not a known key; did you mean \"socket\"?",
        ),
        (
            &format!("{NBD}mountpoint = \"/a\""),
            "line 4: attachments[0].mountpoint: is not a known key; known here are",
        ),
        (
            &format!("{NBD}socket = 1.5"),
            "line 4: attachments[0].socket: a number with a fraction cannot stand here",
        ),
        (
            &format!("{NBD}cores = [0, 1]"),
            "line 4: attachments[0].cores: an array cannot stand here; write one",
        ),
        (
            &format!("{NBD}{NBD}"),
            "line 5: attachments[1].name: \"a\" is the name of an earlier attachment",
        ),
        (
            &format!("{NBD}class_rules = [{{ command = \"fio\", class = \"L\" }}]"),
            "attachments[0].class_rules[0].command: this kind does not know the process",
        ),
    ] {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn faults_of_class_rules_are_told_with_line_and_key() {
    const FUSE: &str = "[[attachments]]\nname = \"a\"\nkind = \"fuse\"\n";
    let rule = |text: &str| format!("{FUSE}[[attachments.class_rules]]\n{text}\n");
    for (text, expected) in [
        (rule("user = \"root\""), "class_rules[0].class: is missing"),
        (
            rule("class = \"L\"\nuser = \"no such user\""),
            "line 6: attachments[0].class_rules[0].user: there is no user",
        ),
        (
            rule("class = \"L\"\ncgroup = \"system.slice\""),
            "class_rules[0].cgroup: does not begin with /",
        ),
        (
            rule("class = \"L\"\ncommand = \"a-very-long-name-of-a-program\""),
            "write \"a-very-long-nam\"",
        ),
        (
            rule("class = \"X\""),
            "line 5: attachments[0].class_rules[0].class: the text \"X\" cannot stand here",
        ),
        (
            rule("class = \"L\"\nsize = 1"),
            "class_rules[0].size: is not a known key",
        ),
        (
            rule("class = \"L\""),
            "line 4: attachments[0].class_rules[0]: has no condition",
        ),
        (
            rule("class = \"L\"\nmax_depth = 0"),
            "line 6: attachments[0].class_rules[0].max_depth: 0 holds for no request",
        ),
    ] {
        let error = read(&text).expect_err(&text).to_string();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}
