//! Every rule of `tidy`, over the whole workspace.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.

use std::collections::BTreeMap;
use std::path::Path;
use switchyard_tidy::{
    Finding, Source, circles, functions, links, names, order, orphans, purity, ratchet,
};
use switchyard_tidy::{unsafety, voice, words};

fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the crate lies in the workspace")
}

fn files() -> Vec<Source> {
    let files = Source::read_all(root()).expect("the workspace can be read");
    let rust = files.iter().filter(|file| file.is_rust()).count();
    assert!(rust > 300, "only {rust} Rust files were found");
    files
}

fn none(findings: Vec<Finding>) {
    let text: Vec<_> = findings.iter().map(Finding::to_string).collect();
    assert!(text.is_empty(), "\n{}\n", text.join("\n"));
}

/// Compares the findings of each crate with its ratchet, and prints those of a crate that fails.
fn within(rule: &str, findings: &[Finding], allowed: impl Fn(ratchet::Ratchet) -> usize) {
    let mut crates: BTreeMap<String, Vec<&Finding>> = BTreeMap::new();
    for (krate, _) in ratchet::RATCHETS {
        crates.insert((*krate).to_owned(), Vec::new());
    }
    for finding in findings {
        let krate = Source::new(&finding.path, "").krate().to_owned();
        crates.entry(krate).or_default().push(finding);
    }
    let mut failures = String::new();
    for (krate, found) in crates {
        let allowed = allowed(ratchet::of(&krate));
        if let Some(reason) = ratchet::judge(&krate, rule, found.len(), allowed) {
            failures += &format!("\n{reason}\n");
            if found.len() > allowed {
                for finding in found {
                    failures += &format!("  {finding}\n");
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn no_file_imports_itself_through_others() {
    none(circles::check(&files(), |krate| {
        ratchet::of(krate).circle_files
    }));
    let mut failures = Vec::new();
    for (krate, circles) in circles::circles(&files()) {
        let justified = |circle: &Vec<String>| {
            let mut all = circles::JUSTIFIED.iter();
            all.any(|(of, files, _)| *of == krate && files.iter().eq(circle))
        };
        let largest = circles.iter().find(|circle| !justified(circle));
        let found = largest.map_or(0, Vec::len);
        let allowed = ratchet::of(&krate).circle_files;
        let rule = "files in the largest circle";
        failures.extend(ratchet::judge(&krate, rule, found, allowed));
    }
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
}

#[test]
fn functions_fit_on_a_page() {
    let found = functions::functions(&files());
    within("functions that are too long", &found, |row| {
        row.long_functions
    });
}

#[test]
fn files_have_one_noun() {
    let found = functions::files(&files());
    within("files that are too long", &found, |row| row.long_files);
}

#[test]
fn comments_name_components() {
    let found = voice::people(&files());
    within("comment lines that speak of people", &found, |row| {
        row.people
    });
}

#[test]
fn doc_comments_say_what_a_thing_is() {
    let found = voice::questions(&files());
    within("doc comments that open with a question", &found, |row| {
        row.questions
    });
}

#[test]
fn there_is_one_word_for_one_thing() {
    let found = words::check(&files(), words::FORBIDDEN);
    within("lines with a forbidden word", &found, |row| row.words);
}

#[test]
fn there_is_one_type_for_one_name() {
    none(names::check(&files(), names::REPEATED));
}

#[test]
fn every_file_is_compiled() {
    none(orphans::check(&files()));
}

#[test]
fn crates_depend_on_those_above_them() {
    none(order::check(&files()));
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    none(unsafety::check(&files(), unsafety::ROOMS));
}

#[test]
fn decisions_know_nothing_of_the_world_outside() {
    none(purity::check(&files()));
}

#[test]
fn documents_point_at_what_is_there() {
    none(links::check(&files(), root()));
}
