//! Encryption at rest: a served volume, its file, and the commands for its key.

use crate::common::{Folder, NQN, Serving, code, pattern, program, run, stderr, stdout};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

const DATA: usize = 3_000_000;

/// Writes a key file of this mode.
fn key(folder: &Folder, name: &str, byte: u8, mode: u32) -> String {
    // 32 bytes in base64 whose first 30 have this pattern of letters.
    let letter = char::from(b'A' + byte);
    let text = format!("{}AAA=\n", letter.to_string().repeat(40));
    let path = folder.write(name, text);
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

fn configuration(folder: &Folder, crypt: &str) -> String {
    let disk = folder.path("disk.img");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n\
         [devices.disk]\ntype = \"file\"\npath = \"{disk}\"\nsize = \"8M\"\ncreate = true\n\
         crypt = {{ {crypt}, create = true }}\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, device = \"disk\" }}]\n"
    );
    folder.write("target.toml", text)
}

/// Returns the message of a target that does not start.
fn refused(config: &str) -> String {
    let output = run(&["serve", "--config", config]);
    code(&output, 2);
    stderr(&output)
}

#[test]
fn a_volume_is_read_with_its_key_alone_and_never_after_the_erasure() {
    let folder = Folder::new();
    let (first, second) = (key(&folder, "a", 0, 0o600), key(&folder, "b", 1, 0o400));
    let by_file = |path: &str| configuration(&folder, &format!("key_file = \"{path}\""));
    let data = pattern(1, DATA);
    let input = folder.write("in", &data);
    let disk = folder.path("disk.img");
    {
        let serving = Serving::start(&["--config", &by_file(&first)]);
        let written = run(&["write", serving.address(), "--input", &input, "--flush"]);
        code(&written, 0);
        let busy = run(&["device", "erase-key", &disk]);
        code(&busy, 2);
        assert!(
            stderr(&busy).contains("must not be in use"),
            "{}",
            stderr(&busy)
        );
        serving.signal("-TERM");
        assert_eq!(serving.end().0, Some(0));
    }
    let stored = std::fs::read(&disk).unwrap();
    assert_eq!(stored.len(), 9 << 20, "the header is not part of the size");
    assert!(
        !stored.windows(64).any(|found| found == &data[..64]),
        "in clear"
    );
    let wrong = refused(&by_file(&second));
    assert!(wrong.contains("the key does not open it"), "{wrong}");
    let change = [
        "device",
        "change-key",
        &disk,
        "--key-file",
        &first,
        "--new-key-file",
        &second,
    ];
    code(&run(&change), 0);
    code(&run(&change), 2);
    {
        // By a command that prints it.
        let crypt = format!("key_command = [\"cat\", \"{second}\"]");
        let serving = Serving::start(&["--config", &configuration(&folder, &crypt)]);
        let read = run(&["read", serving.address(), "--length", &DATA.to_string()]);
        code(&read, 0);
        assert!(read.stdout == data);
        serving.signal("-TERM");
        assert_eq!(serving.end().0, Some(0));
    }
    let erased = run(&["device", "erase-key", &disk]);
    code(&erased, 0);
    assert!(stdout(&erased).contains("no key opens it any more"));
    let gone = refused(&by_file(&second));
    assert!(gone.contains("its key was erased"), "{gone}");
    let open = key(&folder, "c", 2, 0o644);
    let shown = refused(&by_file(&open));
    assert!(shown.contains("chmod 600"), "{shown}");
    let failing = refused(&configuration(&folder, "key_command = [\"false\"]"));
    assert!(failing.contains("exit status: 1"), "{failing}");
    let plain = run(&["device", "erase-key", &input]);
    code(&plain, 2);
    assert!(
        stderr(&plain).contains("no encryption header"),
        "{}",
        stderr(&plain)
    );
}

#[test]
fn a_program_confined_by_landlock_reads_its_key() {
    let folder = Folder::new();
    let path = key(&folder, "key", 3, 0o600);
    let config = configuration(&folder, &format!("key_file = \"{path}\""));
    let mut confined = program();
    confined.arg("serve");
    let output = confined.args([
        "--config",
        &config,
        "--confine",
        "landlock",
        "--until-stdin-ends",
    ]);
    let output = output.output().unwrap();
    if stderr(&output).contains("the kernel does not enforce it") {
        return block::skipped("no landlock");
    }
    code(&output, 0);
}
