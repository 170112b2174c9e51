//! Hints for commands that moved to the program `lab`, for one release.

use anyhow::{Error, anyhow};
use std::ffi::OsString;

/// Returns the error with the new place, if these arguments name a command that moved.
pub fn find(arguments: impl Iterator<Item = OsString>) -> Option<Error> {
    let all: Vec<_> = arguments
        .map(|it| it.to_string_lossy().into_owned())
        .collect();
    let is_value = |at: usize| at > 0 && all[at - 1] == "--log";
    let words = (0..all.len()).filter(|&at| !all[at].starts_with('-') && !is_value(at));
    let words: Vec<&str> = words.take(2).map(|at| all[at].as_str()).collect();
    let (moved, rest) = match words[..] {
        ["figure", ..] => ("`figure`", "figure"),
        ["sim", ..] => ("`sim`", "sim"),
        ["bench", word @ ("limit" | "goals" | "hostile")] => ("this measurement", word),
        ["calibrate", ..] if all.iter().any(|it| it.starts_with("--svg")) => {
            let how = "curves CALIBRATION --output FILE (CALIBRATION: output of calibrate --json)";
            return Some(in_lab("`calibrate --svg`", how));
        }
        _ => return None,
    };
    Some(in_lab(moved, &format!("{rest} …")))
}

fn in_lab(moved: &str, rest: &str) -> Error {
    anyhow!(
        "{moved} has moved to the program `lab`; use: cargo run --release -p switchyard-lab --bin lab \
         -- {rest}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_commands_are_sent_to_the_laboratory_and_others_are_not() {
        let found = |line: &str| {
            let found = find(line.split_whitespace().map(OsString::from));
            found.map(|error| error.to_string())
        };
        for (line, told) in [
            ("figure list", "-- figure …"),
            ("--json figure all --quick", "-- figure …"),
            ("--log off sim check --seeds 5", "-- sim …"),
            ("bench --json limit", "-- limit …"),
            ("bench goals --row a", "-- goals …"),
            ("bench hostile --help", "-- hostile …"),
            ("calibrate flash:A:1G --svg a.svg", "-- curves CALIBRATION"),
        ] {
            let said = found(line).expect("it has moved");
            assert!(said.contains(told), "{line}: {said}");
        }
        for line in [
            "serve",
            "bench --target 127.0.0.1:4420 --app goals:rw=read",
            "calibrate flash:A:1G",
            "--log sim serve",
            "read 127.0.0.1:4420 --output figure",
        ] {
            assert_eq!(found(line), None);
        }
    }
}
