//! Files with faults, each told with its line and key; and what is read from good ones.

use super::*;

fn kinds() -> Vec<Kind> {
    let kind = |name: &str, keys: &[&str], knows_process| Kind {
        name: name.to_owned(),
        keys: keys.iter().map(|&key| key.to_owned()).collect(),
        knows_process,
    };
    vec![
        kind("nbd", &["socket", "cores", "read_only"], false),
        kind("fuse", &["mountpoint", "ram"], true),
    ]
}

fn read(text: &str) -> Result<File<()>, ConfigError> {
    parse(text, &kinds(), |entry| {
        if entry.words.contains_key("cores") {
            return Err(vec![Fault {
                key: Some("cores".to_owned()),
                error: "is wrong".to_owned(),
                what_to_do: "omit it".to_owned(),
            }]);
        }
        Ok(())
    })
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
    let [(b, ()), (a, ())] = &file.attachments[..] else {
        panic!("two attachments");
    };
    assert_eq!((b.name.as_str(), b.kind.as_str()), ("b", "nbd"));
    assert_eq!(b.words["socket"], Word::Text("/run/b".to_owned()));
    assert_eq!(b.words["read_only"], Word::Switch(true));
    assert_eq!(a.words["ram"], Word::Text("4096".to_owned()));
    let expected = ClassCondition {
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
            "line 3: attachments[0].kind: there is no kind \"ndb\"; did you mean \"nbd\"?",
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
            "line 4: attachments[0].cores: is wrong; omit it",
        ),
        (
            &format!("{NBD}{NBD}"),
            "line 5: attachments[1].name: \"a\" is the name of an earlier one",
        ),
        (
            &format!("{NBD}class_rules = [{{ command = \"fio\", class = \"L\" }}]"),
            "attachments[0].class_rules[0].command: nbd does not know the process",
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
