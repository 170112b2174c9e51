//! The meaning of a completion's status for its request: success, retry, or failure.

use block::BlockError;
use wire::nvme::Status;

/// Meaning of a status for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It succeeded.
    Done,
    /// It may succeed if the same command is sent again.
    Retry(BlockError),
    /// It failed.
    Failed(BlockError),
}

/// Classifies the status of an I/O command. `[NVMe Base 2.0 §3.3.3.2.1]`, `[NVMe NVM 1.0 §3.1.2]`
pub(crate) fn judge(status: Status) -> Verdict {
    if status.is_success() {
        return Verdict::Done;
    }
    let error = match status.type_and_code() {
        0x001 => BlockError::Unsupported,
        0x002 | 0x00d..=0x013 | 0x016 | 0x183 => BlockError::Malformed,
        0x00b | 0x301 | 0x302 => BlockError::Gone,
        0x020 | 0x182 => BlockError::ReadOnly,
        0x021 => BlockError::TimedOut,
        0x007 | 0x008 | 0x01b | 0x371 => BlockError::Aborted,
        0x080 => BlockError::OutOfRange,
        0x081 => BlockError::NoSpace,
        0x280 => BlockError::WriteFailure,
        0x286 => BlockError::Denied,
        0x281 | 0x287 => BlockError::ReadFailure,
        0x282..=0x284 | 0x288 => BlockError::Corrupt,
        0x285 => BlockError::CompareFailure,
        _ => BlockError::Internal,
    };
    if is_passing(status) {
        Verdict::Retry(error)
    } else {
        Verdict::Failed(error)
    }
}

/// Returns true if the status is a transient condition and "do not retry" is not set.
pub(crate) fn is_passing(status: Status) -> bool {
    let passing = matches!(
        status.type_and_code(),
        0x004 | 0x007 | 0x008 | 0x021 | 0x022 | 0x082 | 0x300..=0x303 | 0x360 | 0x370 | 0x371
    );
    passing && !status.dnr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_not_retry_is_obeyed() {
        let again = Status::TRANSIENT_TRANSPORT_ERROR;
        assert!(matches!(judge(again), Verdict::Retry(_)));
        assert!(matches!(judge(again.with_dnr()), Verdict::Failed(_)));
        assert_eq!(judge(Status::SUCCESS), Verdict::Done);
        assert_eq!(
            judge(Status::LBA_OUT_OF_RANGE.with_dnr()),
            Verdict::Failed(BlockError::OutOfRange)
        );
        assert_eq!(
            judge(Status::ACCESS_DENIED),
            Verdict::Failed(BlockError::Denied)
        );
    }
}
