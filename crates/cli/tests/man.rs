//! `switchyard man`: a page for each command.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod common;

use common::{Folder, code, json, run, stderr};

#[test]
fn every_command_has_a_page() {
    let folder = Folder::new();
    let written = run(&["man", &folder.path(""), "--json"]);
    code(&written, 0);
    let written = json(&written);
    let pages: Vec<&str> = written["pages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|page| page.as_str().unwrap())
        .collect();
    for expected in [
        "switchyard.1",
        "switchyard-serve.1",
        "switchyard-attach-nbd.1",
        "switchyard-switch-set.1",
        "switchyard-man.1",
    ] {
        assert!(pages.contains(&expected), "{expected}: {pages:?}");
    }
    for page in pages {
        let text = std::fs::read_to_string(folder.path(page)).unwrap();
        let title = page.trim_end_matches(".1").to_uppercase();
        assert!(text.contains(&format!(".TH {title} 1")), "{page}: {text}");
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let folder = Folder::new();
    let refused = run(&["man", &folder.path("missing")]);
    code(&refused, 2);
    assert!(stderr(&refused).contains("missing"), "{}", stderr(&refused));
}
