//! The discovery log page (LID 70h). `[NVMe Base 2.0 §5.16.1.23]`

use crate::layout::layout;
use crate::nvme::{Nqn, NqnError};
use crate::text;

layout! {
    /// Header of the discovery log page; the entries follow it.
    pub struct DiscoveryLogHeader: 1024 {
        /// GENCTR: changes with every change of the page.
        generation: u64 = 0,
        /// NUMREC: number of entries.
        records: u64 = 8,
        /// RECFMT: 0, the only format.
        record_format: u16 = 16,
    }
}

layout! {
    /// One entry of the discovery log page.
    pub struct DiscoveryLogEntry: 1024 {
        /// TRTYPE.
        trtype: u8 = 0,
        /// ADRFAM.
        adrfam: u8 = 1,
        /// SUBTYPE.
        subtype: u8 = 2,
        /// TREQ: security in bits 1:0; bit 2 if SQ flow control can be disabled.
        treq: u8 = 3,
        /// PORTID.
        port_id: u16 = 4,
        /// CNTLID: FFFFh for the dynamic controller model.
        cntlid: u16 = 6,
        /// ASQSZ: entries of the admin queue, at least 32.
        asqsz: u16 = 8,
        /// EFLAGS.
        eflags: u16 = 10,
        /// TRSVCID: the TCP port in decimal, ASCII.
        trsvcid: [u8; 32] = 32,
        /// SUBNQN, padded with zeroes.
        subnqn_field: [u8; 256] = 256,
        /// TRADDR: the address, ASCII.
        traddr: [u8; 256] = 512,
        /// TSAS byte 0, for TCP: SECTYPE.
        sectype: u8 = 768,
    }
}

/// Values of the fields.
impl DiscoveryLogEntry {
    /// TRTYPE: TCP.
    pub const TRTYPE_TCP: u8 = 3;
    /// ADRFAM: IPv4.
    pub const ADRFAM_IPV4: u8 = 1;
    /// ADRFAM: IPv6.
    pub const ADRFAM_IPV6: u8 = 2;
    /// SUBTYPE: referral to another discovery subsystem.
    pub const SUBTYPE_REFERRAL: u8 = 1;
    /// SUBTYPE: a subsystem with namespaces.
    pub const SUBTYPE_NVM: u8 = 2;
    /// SUBTYPE: this discovery subsystem.
    pub const SUBTYPE_CURRENT_DISCOVERY: u8 = 3;
    /// TREQ bits 1:0: security is not specified.
    pub const TREQ_NOT_SPECIFIED: u8 = 0b00;
    /// TREQ bits 1:0: a secure channel is required.
    pub const TREQ_REQUIRED: u8 = 0b01;
    /// TREQ bits 1:0: a secure channel is possible, and not required.
    pub const TREQ_NOT_REQUIRED: u8 = 0b10;
    /// TREQ bit 2: the controller supports disabled SQ flow control.
    pub const TREQ_SQ_FLOW_CONTROL_OPTIONAL: u8 = 1 << 2;
    /// EFLAGS bit 1: explicit persistent connections to this discovery controller.
    pub const EFLAGS_PERSISTENT: u16 = 1 << 1;
    /// SECTYPE: no security.
    pub const SECTYPE_NONE: u8 = 0;
    /// SECTYPE: TLS 1.3.
    pub const SECTYPE_TLS13: u8 = 2;
    /// CNTLID: the dynamic controller model.
    pub const CNTLID_DYNAMIC: u16 = 0xffff;

    /// Sets ADRFAM, TRADDR and TRSVCID.
    pub fn set_address(&mut self, address: core::net::SocketAddr) {
        self.adrfam = if address.is_ipv4() {
            Self::ADRFAM_IPV4
        } else {
            Self::ADRFAM_IPV6
        };
        self.traddr = text::ascii_display_field(address.ip());
        self.trsvcid = text::ascii_display_field(address.port());
    }

    /// Returns TRADDR as text.
    pub fn address_text(&self) -> &str {
        text::field_text(&self.traddr)
    }

    /// Returns TRSVCID as text.
    pub fn service_text(&self) -> &str {
        text::field_text(&self.trsvcid)
    }

    /// Returns TRADDR and TRSVCID as a socket address if both are numeric and the transport is TCP.
    pub fn socket_address(&self) -> Option<core::net::SocketAddr> {
        if self.trtype != Self::TRTYPE_TCP {
            return None;
        }
        let address: core::net::IpAddr = self.address_text().parse().ok()?;
        let port = self.service_text().parse().ok()?;
        Some(core::net::SocketAddr::new(address, port))
    }

    /// SUBNQN.
    ///
    /// # Errors
    ///
    /// The field has no valid name.
    pub fn subnqn(&self) -> Result<Nqn, NqnError> {
        Nqn::from_field(&self.subnqn_field)
    }
}

#[cfg(test)]
mod tests;
