//! Tests of reports and data.

use super::log::{is_read_ahead, trouble};
use super::*;

const CONSOLE: &str = "\
[    0.1] noise\r
SWITCHYARD: step modules ok\r
SWITCHYARD: output modules: fine\r
SWITCHYARD: kernel [ 1.0] nvme nvme0: creating 2 I/O queues.\r
SWITCHYARD: end\r
";

#[test]
fn report_is_read_from_the_console() {
    let report = GuestLog::parse(CONSOLE);
    assert_eq!(report.steps, ["modules"]);
    assert_eq!(report.output, ["modules: fine"]);
    assert!(report.ended);
    report.check(&["modules".to_owned()]).unwrap();
    let error = report.check(&["network".to_owned()]).unwrap_err();
    assert!(error.to_string().contains("did not do step network"));
}

#[test]
fn a_keep_alive_may_be_cancelled_by_a_removal_and_by_nothing_else() {
    let failed = "nvme nvme0: failed nvme_keep_alive_end_io error=4".to_owned();
    let removing = "nvme nvme0: Removing ctrl: NQN \"x\"".to_owned();
    let creating = "nvme nvme0: creating 2 I/O queues.".to_owned();
    let log = [removing.clone(), failed.clone(), creating.clone()];
    assert!(trouble(&log).is_empty());
    let log = [removing, creating, failed.clone()];
    assert_eq!(trouble(&log), [failed.as_str()]);
}

#[test]
fn only_a_read_ahead_may_fail_with_its_connection() {
    let line = |flags| format!("I/O error, dev nvme0c0n1, sector 572 op 0x0:(READ) flags {flags}");
    assert!(is_read_ahead(&line("0x2080700 phys_seg 1 prio class 2")));
    assert!(!is_read_ahead(&line("0x2000700 phys_seg 1 prio class 2")));
    let write = line("0x2080700 phys_seg 1").replace("0x0:(READ)", "0x1:(WRITE)");
    assert!(!is_read_ahead(&write) && !is_read_ahead("I/O error, dev nvme0n1"));
}

#[test]
fn trouble_failure_and_a_missing_end_are_errors() {
    let trouble = CONSOLE.replace("creating 2 I/O queues", "I/O error, dev nvme0n1");
    assert!(
        GuestLog::parse(&trouble)
            .check(&[])
            .unwrap_err()
            .to_string()
            .contains("trouble")
    );
    let failed = CONSOLE.replace("modules ok", "modules failed");
    assert!(
        GuestLog::parse(&failed)
            .check(&[])
            .unwrap_err()
            .to_string()
            .contains("modules")
    );
    let cut = CONSOLE.replace("SWITCHYARD: end", "");
    assert!(
        GuestLog::parse(&cut)
            .check(&[])
            .unwrap_err()
            .to_string()
            .contains("its end")
    );
}

#[test]
fn extents_do_not_overlap_and_stay_within_the_namespace() {
    let data = Data::from_seed(1);
    for mut extents in [data.before(), data.after()] {
        extents.sort_by_key(|extent| extent.offset_bytes);
        let mut end = FILE_SYSTEM_MIB * MIB;
        for extent in extents {
            assert!(extent.offset_bytes >= end);
            end = extent.offset_bytes + extent.content.len() as u64;
        }
        assert!(end <= DEVICE_MIB * MIB);
    }
}
