//! `lab hostile` without a measurement.

use crate::common::{code, run, stderr};

#[test]
fn a_target_that_is_no_address_is_explained() {
    let refused = run(&["hostile", "--target", "nowhere.invalid:x"]);
    code(&refused, 2);
    let said = stderr(&refused);
    assert!(
        said.contains("use HOST:PORT, for example 127.0.0.1:4420"),
        "{said}"
    );
}
