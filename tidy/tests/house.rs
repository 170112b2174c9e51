//! Every rule of `tidy`, over the whole workspace.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.

use std::path::Path;
use switchyard_tidy::{
    Finding, Source, circles, functions, links, order, orphans, purity, unsafety,
};

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

#[test]
fn no_file_imports_itself_through_others() {
    none(circles::check(&files()));
}

#[test]
fn functions_fit_on_a_page() {
    none(functions::functions(&files()));
}

#[test]
fn files_can_be_read_at_once() {
    none(functions::files(&files()));
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
