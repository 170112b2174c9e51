//! What of ReFlex's figures the machine can show.

pub(super) mod fig06;
pub(super) mod table2;
