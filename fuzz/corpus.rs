//! The kept inputs of the fuzz targets, from `fuzz/corpus.tar.gz`. Modules of tests include this file.

use std::process::Command;

/// The kept inputs of `target`, each with its name in the archive `archive`.
pub(crate) fn inputs(archive: &str, target: &str) -> Vec<(String, Vec<u8>)> {
    let gzip = Command::new("gzip").args(["-dc", archive]).output();
    let gzip = gzip.expect("gzip starts");
    assert!(gzip.status.success(), "gzip cannot read {archive}");
    let mut rest = gzip.stdout.as_slice();
    let mut inputs = Vec::new();
    // ustar: a header of 512 bytes, then the content, padded to a multiple of 512. Zeroes end it.
    while rest[0] != 0 {
        let (header, after) = rest.split_at(512);
        let name = text(&header[..100]);
        let length = usize::from_str_radix(text(&header[124..136]), 8).expect("a length in octal");
        if name
            .strip_prefix(target)
            .is_some_and(|input| input.starts_with('/'))
        {
            inputs.push((name.to_owned(), after[..length].to_vec()));
        }
        rest = &after[length.next_multiple_of(512)..];
    }
    assert!(!inputs.is_empty(), "no input of {target} in {archive}");
    inputs
}

/// The text of a field up to its first NUL or space.
fn text(field: &[u8]) -> &str {
    let end = field.iter().position(|byte| matches!(byte, 0 | b' '));
    str::from_utf8(&field[..end.unwrap_or(field.len())]).expect("a field in ASCII")
}
