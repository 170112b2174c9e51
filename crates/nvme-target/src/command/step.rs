//! The next step of a command.

use block::{Extents, Request};
use wire::nvme::Status;

/// Next step of a command that has a slot.
#[derive(Debug)]
pub(crate) enum Step {
    /// The command passes its gates: namespace, tokens.
    Admit,
    /// The command gets a buffer, and its data from the host.
    Prepare,
    /// The command has all that it needs.
    Execute,
    /// A request goes to the device of a namespace, by NSID.
    Submit(u32, Request),
    /// A command over extents goes to the device of a namespace, by NSID.
    SubmitExtents(u32, Extents),
    /// The next part of the command, if it has one.
    Continue,
    /// The command pays for its next part; until then it is not in flight in its namespace.
    PayAgain,
    /// The command waits until a namespace opens.
    WaitForNamespace(u32),
    /// The command waits for an event that is certain: a completion, a buffer, data, tokens.
    Wait,
    /// The command has its status.
    Answer(Status),
}
