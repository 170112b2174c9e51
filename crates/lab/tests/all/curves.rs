//! `lab curves` draws the output of a calibration.

use crate::common::{Folder, code, run, stderr, switchyard};

#[test]
fn a_calibration_of_the_program_is_drawn() {
    let folder = Folder::new();
    let calibrate = ["calibrate", "flash:A:64M", "--virtual", "--quick", "--json"];
    let fast = ["--requests", "10000"];
    let printed = switchyard().args(calibrate).args(fast).output().unwrap();
    code(&printed, 0);
    let report = folder.write("flash-a.json", &printed.stdout);
    let svg = folder.path("curves.svg");
    code(&run(&["curves", &report, "--output", &svg]), 0);
    let svg = std::fs::read_to_string(svg).unwrap();
    for part in [
        "95 % reads",
        "flash-a: read latency",
        "Tokens (1000/s)",
        "model",
    ] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn what_is_no_calibration_is_refused() {
    let folder = Folder::new();
    let other = folder.write("other.json", "{}");
    for file in [other, folder.path("absent")] {
        let refused = run(&["curves", &file, "--output", &folder.path("a.svg")]);
        code(&refused, 2);
        assert!(stderr(&refused).contains(&file), "{}", stderr(&refused));
    }
}
