//! The number of a controller on a switchboard.

/// The number of a controller. It is free when the registry alone holds it: no core has lanes to the
/// controller, no namespace of it is in use, and no request of a submitter is on its way.
#[derive(Debug)]
pub(super) struct TargetNumber(pub(super) u16);
