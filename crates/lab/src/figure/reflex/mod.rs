//! Figures of "ReFlex: Remote Flash ≈ Local Flash" (ASPLOS 2017).

mod emulated;
pub(super) mod fig01;
pub(super) mod fig03;
pub(super) mod fig05;
pub(super) mod fig06;
pub(super) mod table2;
