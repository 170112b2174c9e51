//! `switchyard man`: a page for each command.

use crate::common::{Folder, code, json, run, stderr};

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

/// Regression: it was refused, with the name of the first page.
#[test]
fn a_directory_that_is_missing_is_made() {
    let folder = Folder::new();
    code(&run(&["man", &folder.path("share/man/man1")]), 0);
    std::fs::metadata(folder.path("share/man/man1/switchyard.1")).unwrap();
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let folder = Folder::new();
    let file = folder.write("file", "");
    for directory in [file.clone(), format!("{file}/man1")] {
        let refused = run(&["man", &directory]);
        code(&refused, 2);
        let expected = format!("cannot create directory {directory}");
        assert!(stderr(&refused).contains(&expected), "{}", stderr(&refused));
    }
}
