//! The header in the repository is the one that the code makes.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

use std::path::Path;

/// With `SWITCHYARD_BLESS=1` the header is written instead.
#[test]
fn the_header_is_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    // The files one by one: nothing is asked of cargo.
    for file in [
        "version",
        "error",
        "options",
        "target",
        "namespace",
        "switchboard",
        "queue",
    ] {
        builder = builder.with_src(here.join(format!("src/{file}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = here.join("include/switchyard.h");
    if std::env::var_os("SWITCHYARD_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "include/switchyard.h is not what the code makes: run this test with SWITCHYARD_BLESS=1"
    );
}
