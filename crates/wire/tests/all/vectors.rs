//! Golden vectors: streams as bytes, each with its text.
//!
//! `vectors/NAME.hex` has the bytes, written from the specifications and not by this crate; its
//! second comment line names the receiving end and the digests after the first PDU.
//! `vectors/NAME.txt` has one line per PDU.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use wire::tcp::{DataAlignment, FramerLimits, PduFormat, Role};

    use crate::fuzz_entry::pretty::{Queue, line};
    use crate::fuzz_entry::{Received, Setup, encode_pdu, run};

    struct Vector {
        setup: Setup,
        queue: Queue,
        bytes: Vec<u8>,
        lines: Vec<String>,
    }

    fn load(path: &Path) -> Vector {
        let hex = fs::read_to_string(path).unwrap();
        let text = fs::read_to_string(path.with_extension("txt")).unwrap();
        let settings = hex.lines().nth(1).unwrap();
        let has = |setting: &str| settings.split_whitespace().any(|word| word == setting);
        let role = if has("receiver=host") {
            Role::Host
        } else {
            Role::Controller
        };
        let format = PduFormat {
            header_digest: has("hdgst=on"),
            data_digest: has("ddgst=on"),
            alignment: DataAlignment::DWORD,
        };
        let limits = FramerLimits {
            capsule_data_bytes: 8192,
            data_pdu_bytes: 131_072,
        };
        let bytes = hex
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(str::split_whitespace)
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        Vector {
            setup: Setup {
                role,
                format,
                limits,
            },
            queue: if has("queue=admin") {
                Queue::Admin
            } else {
                Queue::Io
            },
            bytes,
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    fn text(pdu: &Received, queue: Queue) -> String {
        let line = line(&pdu.header, queue);
        if pdu.data.is_empty() {
            line.to_string()
        } else {
            format!("{line} data={}", pdu.data.len())
        }
    }

    fn paths() -> Vec<PathBuf> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
        let mut paths: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "hex"))
            .collect();
        paths.sort();
        paths
    }

    /// Parsing gives the text, and encoding the parsed values gives the bytes.
    #[test]
    fn vectors_say_what_is_written_beside_them() {
        let paths = paths();
        assert!(paths.len() >= 12, "the vectors are missing");
        for path in paths {
            let vector = load(&path);
            let outcome = run(&vector.setup, &vector.bytes, &[], false);
            let name = path.display();
            assert_eq!(outcome.error, None, "{name}");
            assert!(
                outcome.pdus.iter().all(|pdu| pdu.digest_ok == Some(true)),
                "{name}"
            );
            let lines: Vec<_> = outcome
                .pdus
                .iter()
                .map(|pdu| text(pdu, vector.queue))
                .collect();
            assert_eq!(lines, vector.lines, "{name}");
            let again: Vec<_> = outcome
                .pdus
                .iter()
                .flat_map(|pdu| encode_pdu(&pdu.header, &pdu.data, &vector.setup.format))
                .collect();
            assert_eq!(again, vector.bytes, "{name}");
        }
    }
}
