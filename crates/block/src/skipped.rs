//! Tests for which a machine lacks the means.

use std::fmt::Display;

/// Reports that the calling test does not run, or only in part, and why.
///
/// # Panics
/// With `CI=true` in the environment, where no test may be skipped.
#[track_caller]
pub fn skipped(why: impl Display) {
    // The test harness names a test's thread after the test.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let may_skip = std::env::var_os("CI").is_none_or(|ci| ci != "true");
    assert!(
        may_skip,
        "{test} would be skipped, and with CI=true nothing may be: {why}"
    );
    println!("skipped: {test}: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const AGAIN: &str = "SWITCHYARD_TEST_SKIPPED";

    /// Runs itself, in CI and elsewhere.
    #[test]
    fn what_would_be_skipped_fails_in_ci_alone() {
        if std::env::var_os(AGAIN).is_some() {
            return skipped("there is no reason");
        }
        let run = |ci: &str| {
            let program = std::env::current_exe().expect("this one");
            let name = "skipped::tests::what_would_be_skipped_fails_in_ci_alone";
            let mut command = Command::new(program);
            command.args([name, "--exact", "--show-output"]);
            let output = command.env(AGAIN, "1").env("CI", ci).output();
            let output = output.expect("it starts");
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            (output.status.success(), said)
        };
        let (passed, said) = run("false");
        let line = "skipped: skipped::tests::what_would_be_skipped_fails_in_ci_alone: there is no \
                    reason";
        assert!(passed && said.lines().any(|l| l == line), "{said}");
        let (passed, said) = run("true");
        let why = "what_would_be_skipped_fails_in_ci_alone would be skipped, and with CI=true nothing \
                   may be: there is no reason";
        assert!(!passed && said.contains(why), "{said}");
        assert!(!said.contains("skipped: "), "{said}");
    }
}
