//! The performance model beside the machine: calibration of its costs, and validation of its
//! predictions.

mod calibrate;
mod machine;
mod validate;

pub use calibrate::calibrate;
pub use validate::{ValidateArgs, ValidateReport, validate};
